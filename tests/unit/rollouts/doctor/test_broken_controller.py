"""Set-ups in which nobody moves the Rollout, though it says Progressing, or Healthy."""

from __future__ import annotations

from typing import Any

from fakes.clusters.doctor_region import CONTROLLER, NAME, Region, fleet

from rollouts.argo.state import phase_of
from rollouts.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EXPERIMENTS,
    PODS,
    ROLLOUTS,
)
from tidegate.core.model import Json

CONFIG = "argo-rollouts-config"


def listing(region: Region, text: str) -> None:
    """The controller's configuration says so, and it has been restarted since."""
    region.cluster.patch(CONFIG_MAPS, CONFIG, {"data": {"trafficRouterPlugins": text}}, namespace=CONTROLLER)
    restarted(region)


def restarted(region: Region) -> None:
    region.wait(10)
    for pod in region.cluster.list(PODS, namespace=CONTROLLER):
        region.cluster.delete(PODS, pod["metadata"]["name"], namespace=CONTROLLER)
    region.wait(60)


def uninstalled(region: Region, *, dead: bool = True) -> None:
    """No pod and no Deployment of it is left in its namespace; it runs elsewhere unless it is `dead`."""
    region.cluster.delete(DEPLOYMENTS, "argo-rollouts", namespace=CONTROLLER)
    region.cluster.delete(CONFIG_MAPS, CONFIG, namespace=CONTROLLER)
    region.controller_dead = dead
    region.wait(120)


def waiting(reason: str, **last: Any) -> Json:
    return {
        "name": "argo-rollouts",
        "restartCount": 40,
        "state": {"waiting": {"reason": reason}},
        "lastState": {"terminated": {"reason": "Error", "exitCode": 1, **last}},
    }


async def test_a_definition_that_an_upgrade_removed(region: Region) -> None:
    region.cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, "experiments.argoproj.io")
    region.cluster.uninstall(EXPERIMENTS)
    assert await region.found() == {"crd-missing"}


async def test_no_argo_rollouts_at_all() -> None:
    region = Region(deploy=False)
    for definition in region.cluster.list(CUSTOM_RESOURCE_DEFINITIONS):
        region.cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, definition["metadata"]["name"])
    region.cluster.uninstall(ROLLOUTS)
    uninstalled(region)
    assert await region.found() == {"crd-missing", "controller-absent"}


async def test_a_definition_that_serves_another_version(region: Region) -> None:
    def older(it: Json) -> None:
        it["spec"]["versions"][0]["name"] = "v1beta1"

    region.edit(CUSTOM_RESOURCE_DEFINITIONS, "httproutes.gateway.networking.k8s.io", older)
    assert await region.found() == {"crd-version"}


async def test_a_definition_without_a_status_subresource(region: Region) -> None:
    region.edit(
        CUSTOM_RESOURCE_DEFINITIONS,
        "rollouts.argoproj.io",
        lambda it: it["spec"]["versions"][0].pop("subresources"),
    )
    assert await region.found() == {"crd-without-status"}


async def test_a_definition_that_the_api_server_does_not_accept(region: Region) -> None:
    refused = {"type": "Established", "status": "False", "message": 'spec.names.shortNames: "ro" is taken'}
    region.edit(
        CUSTOM_RESOURCE_DEFINITIONS,
        "rollouts.argoproj.io",
        lambda it: it["status"].update(conditions=[refused]),
        status=True,
    )
    assert await region.found() == {"crd-not-established"}


async def test_a_controller_that_was_scaled_to_nothing(region: Region) -> None:
    region.cluster.patch(DEPLOYMENTS, "argo-rollouts", {"spec": {"replicas": 0}}, namespace=CONTROLLER)
    region.wait(60)
    assert await region.found() == {"controller-absent"}


async def test_a_controller_outside_the_cluster_that_has_seen_the_rollout(region: Region) -> None:
    uninstalled(region)
    (found,) = await region.examined()
    assert (found.code, found.severity) == ("controller-elsewhere", "note")
    assert found.evidence == (f"Rollout {NAME}: generation 1, observed 1",)


async def test_a_controller_outside_the_cluster_before_the_first_delivery() -> None:
    region = Region(deploy=False)
    uninstalled(region, dead=False)
    found = {one.code: one for one in await region.examined()}
    assert set(found) == {"controller-elsewhere", "nothing-deployed"}
    assert found["controller-elsewhere"].evidence == (
        "Lease argo-rollouts-controller-lock: held by argo-rollouts_1, renewed 0 s ago",
    )


async def test_a_controller_outside_the_cluster_that_is_at_work(region: Region) -> None:
    """It has not taken up the last operation; the status that it wrote after that operation says that it lives."""
    uninstalled(region)
    region.simulation.controller_down = True
    region.rollout(lambda it: it["spec"].update(minReadySeconds=5))
    region.wait(600)
    now = region.cluster.time.now().isoformat()
    region.edit(ROLLOUTS, NAME, lambda it: it["status"]["conditions"][0].update(lastUpdateTime=now), status=True)
    assert await region.found() == {"rollout-not-reconciled"}


async def test_a_controller_that_is_nowhere_and_leaves_a_change_unseen(region: Region) -> None:
    uninstalled(region)
    region.simulation.controller_down = True
    region.deploy("8")
    region.wait(600)
    assert await region.found() == {"controller-absent", "rollout-not-reconciled"}


async def test_a_controller_that_crashes_at_a_plugin_it_cannot_download(region: Region) -> None:
    message = 'level=fatal msg="Failed to download plugins: failed to download plugin from https://example.com"'
    region.simulation.crash("quay.io/argoproj/argo-rollouts:v1.9.1")
    region.wait(60)
    (pod,) = region.cluster.list(PODS, namespace=CONTROLLER)
    region.states(pod, waiting("CrashLoopBackOff", message=message))
    (found,) = await region.examined()
    assert found.code == "controller-crashes"
    assert found.evidence[-1] == message


async def test_a_controller_that_restarts_between_two_looks(region: Region) -> None:
    (pod,) = region.cluster.list(PODS, namespace=CONTROLLER)
    now = region.cluster.time.now().isoformat()
    state = waiting("", finishedAt=now) | {"state": {"running": {"startedAt": now}}}
    region.states(pod, state)
    assert await region.found() == {"controller-crashes"}


async def test_no_replica_that_leads(region: Region) -> None:
    await region.examined()
    region.controller_dead = True
    region.wait(120)
    assert await region.found() == {"controller-without-leader"}


async def test_a_lease_of_a_controller_that_needs_none(region: Region) -> None:
    await region.examined()
    region.controller_dead = True
    region.edit(
        DEPLOYMENTS,
        "argo-rollouts",
        lambda it: it["spec"]["template"]["spec"]["containers"][0].update(args=["--leader-elect=false"]),
        namespace=CONTROLLER,
    )
    region.wait(120)
    assert await region.found() == set()


async def test_a_plugin_that_does_not_load_looks_like_progress_for_ever(region: Region) -> None:
    region.simulation.plugin_broken = True
    region.deploy("8")
    region.wait(6 * 3600)
    assert phase_of(region.cluster.get(ROLLOUTS, NAME)).phase == "Progressing"
    found = {one.code: one for one in await region.examined()}
    assert set(found) == {"no-progress", "plugin-fails", "reconcile-errors"}
    assert "step 0/8 for 6 h" in found["no-progress"].what
    assert any("rollout_reconcile_error is" in line for line in found["no-progress"].evidence)


async def test_a_change_that_the_controller_never_reacts_to(region: Region) -> None:
    region.simulation.plugin_broken = True
    region.rollout(lambda it: it["spec"].update(minReadySeconds=5))
    region.wait(600)
    assert phase_of(region.cluster.get(ROLLOUTS, NAME)).phase == "Progressing"
    found = {one.code: one for one in await region.examined()}
    assert set(found) == {"rollout-not-reconciled", "plugin-fails"}
    assert "generation 2, observed 1" in found["rollout-not-reconciled"].evidence


async def test_a_controller_that_was_away_when_something_changed(region: Region) -> None:
    region.cluster.patch(DEPLOYMENTS, "argo-rollouts", {"spec": {"replicas": 0}}, namespace=CONTROLLER)
    region.simulation.controller_down = True
    region.deploy("8")
    region.wait(600)
    assert await region.found() == {"controller-absent", "rollout-not-reconciled"}


async def test_a_controller_that_sees_the_rollout_and_fails(region: Region) -> None:
    region.api.texts[f"/api/v1/namespaces/{CONTROLLER}/services/argo-rollouts-metrics:8090/proxy/metrics"] = lambda: (
        f'rollout_reconcile_count{{name="{NAME}",namespace="llm"}} 12\n'
        f'rollout_reconcile_error{{name="{NAME}",namespace="llm"}} 11\n'
    )
    assert await region.found() == {"reconcile-errors"}


async def test_a_write_that_the_controller_lost_is_a_note_that_names_the_versions(region: Region) -> None:
    at = "2026-01-01T00:00:00+00:00"
    region.cluster.patch(ROLLOUTS, NAME, {"metadata": {"annotations": {"tidegate.dev/woken": at}}})
    (found,) = await region.examined()
    assert (found.code, found.severity) == ("write-lost", "note")
    assert found.evidence == (f"tidegate.dev/woken: {at}, controller's version: 1.9",)
    assert "up to 1.9.1" in found.cause


async def test_a_plugin_that_is_not_in_the_configuration(region: Region) -> None:
    listing(region, '- name: "argoproj-labs/gateway"\n  location: "https://example.com/plugin"\n')
    assert await region.found() == {"plugin-unknown"}


async def test_no_configuration(region: Region) -> None:
    region.cluster.delete(CONFIG_MAPS, CONFIG, namespace=CONTROLLER)
    assert await region.found() == {"plugin-unknown"}


async def test_a_configuration_that_is_no_list(region: Region) -> None:
    listing(region, "argoproj-labs/gatewayAPI: https://example.com/plugin\n")
    assert await region.found() == {"plugin-config-unreadable"}


async def test_a_location_without_a_scheme(region: Region) -> None:
    listing(region, '- name: "argoproj-labs/gatewayAPI"\n  location: "example.com/plugin"\n')
    (found,) = await region.examined()
    assert (found.code, "neither http, https nor file" in found.evidence[0]) == ("plugin-config-unreadable", True)


async def test_a_configuration_that_is_no_yaml(region: Region) -> None:
    listing(region, '- name: "argoproj-labs/gatewayAPI\n')
    assert await region.found() == {"plugin-config-unreadable"}


async def test_a_plugin_that_was_listed_after_the_controller_started(region: Region) -> None:
    region.wait(3600)
    text = '- name: "argoproj-labs/gatewayAPI"\n  location: "file:///plugins/gatewayapi"\n'
    region.cluster.patch(CONFIG_MAPS, CONFIG, {"data": {"trafficRouterPlugins": text}}, namespace=CONTROLLER)
    region.wait(600)
    assert await region.found() == {"plugin-added-later"}
    restarted(region)
    assert await region.found() == set()


async def test_a_failing_plugin_that_hides_its_first_failure(region: Region) -> None:
    region.log = [f'level=error msg="roCtx.reconcile err exec: Stdout already set" namespace=llm rollout={NAME}']
    (found,) = await region.examined()
    assert (found.code, found.evidence) == ("plugin-fails", tuple(region.log))


async def test_a_controller_in_another_namespace_than_asked(region: Region) -> None:
    (found,) = await region.examined(namespace="default")
    assert (found.code, "--controller-namespace" in found.remediation) == ("controller-elsewhere", True)


async def test_without_a_plugin_its_configuration_is_nobodys_business() -> None:
    region = Region(fleet(traffic="istio"))
    listing(region, "no list")
    assert await region.found() == set()
