"""No false alarms: a region that is well is told to be well, whatever it is doing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.clusters.doctor_region import NAME, Region, fleet

from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, ROLLOUTS

EXPORTED = Path(__file__).parents[4] / "examples/slo/exported/analysis-templates.yaml"

CANARY, ISTIO = {}, {"traffic": "istio"}
KEDA = {"autoscale": {"min_replicas": 2, "max_replicas": 4}}
HPA = {"autoscale": {"by": "hpa", "min_replicas": 2, "max_replicas": 4}}
DIRECT = {"gateway": {"name": "public", "hosts": ["llm.example.com"], "direct": {"name": "inside"}}}
WARM_POOL = {"warm_pool": {"share": "50%"}}
SPECS = {
    "gateway-api": CANARY,
    "istio": ISTIO,
    "keda": KEDA,
    "hpa": HPA,
    "hosts-of-each-arm": DIRECT,
    "warm-pool": WARM_POOL,
    "one-engine": {"replicas": 1},
}


@pytest.mark.parametrize("changes", SPECS.values(), ids=SPECS)
async def test_one_version_serves(changes: dict[str, Any]) -> None:
    assert await Region(fleet(**changes)).examined(rights=True) == ()


@pytest.mark.parametrize("changes", [CANARY, ISTIO], ids=["gateway-api", "istio"])
async def test_a_canary_at_every_pause(changes: dict[str, Any]) -> None:
    region = Region(fleet(**changes))
    region.deploy("8")
    pauses = []
    for _ in range(4):
        region.wait(60)
        rollout = region.cluster.get(ROLLOUTS, NAME)
        pauses.append((rollout["status"]["phase"], rollout["status"]["currentStepIndex"]))
        assert await region.examined() == ()
        region.promote_step()
    assert pauses == [("Paused", 1), ("Paused", 3), ("Paused", 5), ("Paused", 7)]


async def test_a_version_that_was_just_promoted_with_the_last_one_kept_warm() -> None:
    region = Region()
    region.deploy("8")
    region.wait(60)
    region.cluster.patch(ROLLOUTS, NAME, {"status": {"promoteFull": True}}, subresource="status")
    region.wait(120)
    assert region.cluster.get(ROLLOUTS, NAME)["status"]["phase"] == "Healthy"
    assert await region.examined() == ()


async def test_a_canary_that_was_aborted_and_taken_back() -> None:
    region = Region()
    region.deploy("8")
    region.wait(60)
    region.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True}}, subresource="status")
    region.wait(60)
    region.deploy("7")
    region.wait(600)
    assert await region.examined() == ()


async def test_a_canary_whose_engines_still_load() -> None:
    region = Region()
    region.simulation.slow("8", 1500)
    region.deploy("8")
    for _ in range(2):
        region.wait(600)
        assert await region.examined() == ()


async def test_a_rollout_that_somebody_paused() -> None:
    region = Region()
    region.rollout(lambda it: it["spec"].update(paused=True))
    region.wait(3 * 86400)
    assert await region.examined() == ()


async def test_a_canary_that_gets_copies() -> None:
    region = Region()
    region.deploy("8")
    region.wait(60)
    copy = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": f"{NAME}-canary", "port": 80}}}
    region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"][0].update(filters=[copy]))
    assert await region.examined() == ()


async def test_a_change_that_the_controller_has_not_seen_for_a_second() -> None:
    region = Region()
    region.simulation.controller_down = True
    region.deploy("8")
    region.wait(1)
    assert await region.examined() == ()


@pytest.mark.long
async def test_promises_are_watched_by_templates_of_ours() -> None:
    exported = yaml.safe_load_all(EXPORTED.read_text(encoding="utf-8"))
    analyses = [one for one in exported if one["metadata"]["name"].endswith("-background")]
    region = Region(analyses=analyses)
    region.deploy("8", analyses=analyses)
    region.wait(60)
    region.promote_step()
    region.wait(60)
    found = await region.examined()
    assert {one.code for one in found} <= {"refusals-not-counted"}
    assert region.prometheus.asked


async def test_a_deployment_that_gave_its_template_away() -> None:
    region = Region()
    template = region.cluster.get(ROLLOUTS, NAME)["spec"]["template"]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "legacy", "namespace": "llm"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"tidegate.dev/delivery": NAME}}, "template": template},
    }
    region.cluster.create(DEPLOYMENTS, deployment)

    def borrow(it: dict[str, Any]) -> None:
        del it["spec"]["template"]
        it["spec"]["workloadRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "legacy"}

    region.rollout(borrow)
    region.wait(300)
    assert await region.examined() == ()


async def test_a_region_before_its_first_delivery() -> None:
    region = Region(deploy=False)
    assert [(one.code, one.severity) for one in await region.examined()] == [("nothing-deployed", "note")]


async def test_somebody_who_may_read_little_is_told_what_was_not_looked_at() -> None:
    region = Region()
    rule = {"apiGroups": ["*"], "verbs": ["get", "list"]}
    region.api.access.allow_only({**rule, "resources": ["rollouts", "replicasets", "pods"]})
    (found,) = await region.examined()
    assert (found.code, found.severity) == ("not-looked-at", "note")
    assert "services" in found.evidence[0]
