"""Each way to break a healthy region is found by its code and by no other, with the objects and fields by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fakes.clusters.doctor_region import CONTROLLER, GPU, GUARD_IMAGE, NAME, Region, canary, fleet, trial
from fakes.kube.refusal import Refusal

from rollouts.doctor.diagnosis import CHECKS
from rollouts.doctor.model import EvidenceQuery
from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    DEPLOYMENTS,
    HTTP_ROUTES,
    NETWORK_POLICIES,
    PODS,
    ROLLOUTS,
    SERVICES,
    VIRTUAL_SERVICES,
    Resource,
)
from rollouts.manifests.conventions import GUARD, guard
from tidegate.core.access import CredentialMissing
from tidegate.core.adapters.prometheus import PrometheusDenied, PrometheusRefused, PrometheusUnreachable
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH as HASH
from tidegate.core.names import VERSION, WOKEN

Break = Callable[[Region], object]
WOKEN_ONCE = {"metadata": {"annotations": {WOKEN: "once"}}}
STABLE, CANARY, HELD = f"{NAME}-stable", f"{NAME}-canary", f"llm.{NAME}-rollouts"


class Row(NamedTuple):
    """A region is broken, and this is found."""

    codes: str
    """The code; others that the same fault always brings, after it."""
    says: str
    """A part of the finding's sentence or evidence."""
    broken: Break
    begin: Callable[[], Region] = Region


def empty() -> Region:
    return Region(deploy=False)


def istio() -> Region:
    return Region(fleet(traffic="istio"))


def deployed(region: Region, seconds: float) -> None:
    region.deploy("8")
    region.wait(seconds)


def spec_of(resource: Resource, name: str, **fields: Any) -> Break:
    return lambda region: region.edit(resource, name, lambda it: it["spec"].update(fields))


ACCESS = [
    Row(
        "not-ours",
        f"NetworkPolicy {NAME} in llm is not tidegate's",
        lambda region: region.edit(NETWORK_POLICIES, NAME, lambda it: it["metadata"].pop("labels")),
    ),
    Row(
        "crd-missing",
        "this cluster knows no httproutes.gateway.networking.k8s.io",
        lambda region: region.at_last.append(lambda: region.cluster.uninstall(HTTP_ROUTES)),
    ),
    Row("clock-skew", "40 s ahead of", lambda region: setattr(region.api, "clock_skew_seconds", 40)),
    Row(
        "admission-differs",
        f"ValidatingAdmissionPolicy {HELD} is not there",
        lambda region: region.cluster.delete(ADMISSION_POLICIES, HELD),
    ),
    Row(
        "admission-differs",
        f"ValidatingAdmissionPolicyBinding {HELD} differs in validationActions",
        spec_of(ADMISSION_BINDINGS, HELD, validationActions=["Warn"]),
    ),
    Row(
        "admission-differs",
        "differs in matchConditions, validations",
        spec_of(ADMISSION_POLICIES, HELD, validations=[], matchConditions=[{"name": "never", "expression": "false"}]),
    ),
    Row(
        "admission-differs",
        "differs in matchConstraints.excludeResourceRules",
        lambda region: region.edit(
            ADMISSION_POLICIES,
            HELD,
            lambda it: it["spec"]["matchConstraints"].update(excludeResourceRules=[{"resources": ["*"]}]),
        ),
    ),
]


def uninstalled(region: Region) -> None:
    """Nothing of the controller is left."""
    region.cluster.delete(DEPLOYMENTS, "argo-rollouts", namespace=CONTROLLER)
    region.simulation.controller_down = True
    region.wait(120)


def crashing(region: Region) -> None:
    region.simulation.crash("quay.io/argoproj/argo-rollouts:v1.9.1")
    region.wait(60)
    words = 'starting\nlevel=fatal msg="failed to download plugin"\n'
    ended = {"terminated": {"reason": "Error", "exitCode": 1, "message": words}}
    (pod,) = region.cluster.list(PODS, namespace=CONTROLLER)
    region.states(pod, {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended})


def nowhere_with_a_change_unseen(region: Region) -> None:
    uninstalled(region)
    deployed(region, 600)


def hanging(region: Region) -> None:
    region.simulation.controller_down = True
    deployed(region, 600)


def plugin_that_does_not_load(region: Region) -> None:
    region.simulation.plugin_broken = True
    deployed(region, 6 * 3600)


def plugin_that_ends_in_a_rollout(region: Region) -> None:
    region.simulation.plugin_broken = True
    region.promote_step()
    region.wait(6 * 3600)


RPC = f'msg="roCtx.reconcile err rpc error: connection is shut down" rollout={NAME}'

CONTROLLERS = [
    Row(
        "controller-absent",
        "no pod labelled",
        lambda region: region.cluster.delete(PODS, "argo-rollouts-1", namespace=CONTROLLER),
    ),
    Row("controller-absent", 'level=fatal msg="failed to download plugin"', crashing),
    Row("controller-absent no-progress", "no Argo Rollouts controller runs in", nowhere_with_a_change_unseen),
    Row("no-progress", "generation 2, observed 1", hanging),
    Row("no-progress plugin-fails", "waiting for rollout to scale its new ReplicaSet", plugin_that_does_not_load),
    Row("no-progress plugin-fails", "at step 4/8 for 6 h", plugin_that_ends_in_a_rollout, canary),
    Row(
        "plugin-fails",
        f"level=error {RPC}",
        lambda region: region.log.extend([f"level=info {RPC}", f"level=error {RPC}"]),
    ),
    Row("write-lost", "once", lambda region: region.cluster.patch(ROLLOUTS, NAME, WOKEN_ONCE)),
]


def aborted(region: Region) -> None:
    region.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True}}, subresource="status")
    region.wait(600)


def undecided(region: Region) -> None:
    pause = {"reason": "InconclusiveAnalysisRun", "startTime": region.cluster.time.now().isoformat()}
    paused = {"status": {"pauseConditions": [pause], "controllerPause": True}}
    region.at_last.append(lambda: region.cluster.patch(ROLLOUTS, NAME, paused, subresource="status"))


def applied_by_argo_cd(region: Region) -> None:
    template = region.cluster.get(ROLLOUTS, NAME)["spec"]["template"]
    labels = {**template["metadata"]["labels"], VERSION: "7"}
    written = {"spec": {"template": {"metadata": {"labels": labels}}}}
    region.cluster.patch(ROLLOUTS, NAME, written, manager="argocd-controller")
    region.wait(60)


def never_ready(region: Region) -> None:
    region.simulation.slow("8", 86400)
    deployed(region, 2 * 3600)


def down(region: Region) -> None:
    region.simulation.crash("7")
    region.wait(120)


def dynamic(**fields: int) -> Break:
    """The stable is scaled down as the weight rises."""
    canary: Json = dict.fromkeys(("abortScaleDownDelaySeconds", "minPodsPerReplicaSet", "scaleDownDelaySeconds"))
    strategy = {"spec": {"strategy": {"canary": {**canary, **fields, "dynamicStableScale": True}}}}
    return lambda region: region.cluster.patch(ROLLOUTS, NAME, strategy)


OF_THE_ROLLOUT = [
    Row("nothing-deployed", f"there is no Rollout {NAME} in namespace llm", lambda _: None, empty),
    Row("nothing-serves pod-crashes", "has no available pod", down),
    Row("rollout-invalid", "MaxSurge can not be zero", lambda region: region.refused("MaxSurge\ncan not be zero")),
    Row("rollout-aborted", "Rollout aborted update to revision 2", aborted, canary),
    Row("abort-cannot-finish", "abortScaleDownDelaySeconds: 300", dynamic(abortScaleDownDelaySeconds=300)),
    Row("abort-cannot-finish", "minPodsPerReplicaSet: 2", dynamic(minPodsPerReplicaSet=2)),
    Row("no-progress", "has said ProgressDeadlineExceeded", never_ready),
    Row("paused", "step 3/8", lambda region: region.wait(4 * 86400), canary),
    Row("paused", "InconclusiveAnalysisRun", undecided, canary),
    Row("reverted-by", "asks for version 7", applied_by_argo_cd, trial),
]


def rule(region: Region, **fields: Any) -> None:
    """Somebody changes the one rule of the HTTPRoute."""
    region.edit(HTTP_ROUTES, NAME, lambda it: it["spec"]["rules"][0].update(fields))


def selector(service: str, **labels: str | None) -> Break:
    """Somebody undoes what the controller wrote, again and again."""
    patch = {"spec": {"selector": {HASH if key == "hash" else key: value for key, value in labels.items()}}}
    return lambda region: region.at_last.append(lambda: region.cluster.patch(SERVICES, service, patch))


def pods_of_another_workload(region: Region) -> None:
    labels = region.cluster.list(PODS, labels=f"{VERSION}=7")[0]["metadata"]["labels"]
    metadata = {"name": "litellm", "namespace": "llm", "labels": {**labels, HASH: "other"}}
    region.cluster.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})
    selector(STABLE, hash=None)(region)


def both_of_one_version(region: Region) -> None:
    selector(CANARY, hash=region.cluster.get(SERVICES, STABLE)["spec"]["selector"][HASH])(region)


def deleted(resource: Resource, name: str) -> Break:
    def broken(region: Region) -> None:
        region.cluster.delete(resource, name)
        region.wait(30)

    return broken


def other_hosts(region: Region) -> None:
    routes = [{"destination": {"host": "elsewhere"}, "weight": 100}]
    http = {"spec": {"http": [{"name": "users", "route": routes}]}}
    region.at_last.append(lambda: region.cluster.patch(VIRTUAL_SERVICES, NAME, http))


def not_accepted(region: Region) -> None:
    no = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no listener allows it"}
    parents = {"status": {"parents": [{"parentRef": {"name": "public"}, "conditions": [no]}]}}
    region.cluster.patch(HTTP_ROUTES, NAME, parents, subresource="status")


TO_STABLE, TO_CANARY = {"name": STABLE, "port": 80}, {"name": CANARY, "port": 80}
HALVES = [{**TO_STABLE, "weight": 50}, {**TO_CANARY, "weight": 50}]
PREVIEW = {"name": "preview", "port": 80}

TRAFFIC = [
    Row("rollout-invalid", CANARY, deleted(SERVICES, CANARY)),
    Row("service-wrong-pods", f"Service {STABLE} selects no pod of Rollout {NAME}", selector(STABLE, app="chat")),
    Row("service-wrong-pods", "also selected: litellm", pods_of_another_workload),
    Row("service-wrong-pods", "select the same pods while two versions run", both_of_one_version, canary),
    Row("route-missing", f"there is no HTTPRoute {NAME} in namespace llm", deleted(HTTP_ROUTES, NAME)),
    Row("route-missing", "preview", lambda region: rule(region, backendRefs=[TO_STABLE, PREVIEW])),
    Row("route-missing", "its backends: elsewhere", other_hosts, istio),
    Row("route-not-accepted", "NotAllowedByListeners", not_accepted),
    Row(
        "weight-differs",
        "gives the canary 50 % of requests, not 5 %",
        lambda region: region.at_last.append(lambda: rule(region, backendRefs=HALVES)),
        canary,
    ),
]


def refused_by_the_api_server(region: Region) -> None:
    def refuse(verb: str, kind: Resource, body: Json) -> None:
        if (verb, kind.plural) == ("create", "pods"):
            raise Refusal(403, "Forbidden", 'pods "x" is forbidden: no PriorityClass with name llm-engines was found')

    region.cluster.admission.append(refuse)
    deployed(region, 60)


def without_a_node(region: Region) -> None:
    deployed(region, 60)
    region.without_a_node("8")
    region.wait(900)


def without_image(region: Region) -> None:
    region.simulation.image_pull_fails("8")
    deployed(region, 120)


def out_of_memory(region: Region) -> None:
    region.simulation.crash("8")
    deployed(region, 120)
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    for pod in region.cluster.list(PODS, labels=f"{VERSION}=8"):
        region.states(pod, {"name": "engine", "restartCount": 3, "state": waits, "lastState": ended})


def guard_of_another_image(region: Region) -> None:
    other = {"image": GUARD_IMAGE.replace("5", "4")}
    region.edit(DEPLOYMENTS, guard(NAME), lambda it: it["spec"]["template"]["spec"]["containers"][0].update(other))
    region.wait(60)


def guard_not_ready(**state: Any) -> Break:
    said = {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{"state": state}]}

    def broken(region: Region) -> None:
        (pod,) = region.cluster.list(PODS, labels=f"{GUARD}={NAME}")
        name = pod["metadata"]["name"]
        region.at_last.append(lambda: region.cluster.patch(PODS, name, {"status": said}, subresource="status"))

    return broken


OF_PODS = [
    Row("pods-refused", "no PriorityClass", refused_by_the_api_server),
    Row("pods-unschedulable", f"Insufficient {GPU}", without_a_node),
    Row("image-not-pulled", "ImagePullBackOff", without_image),
    Row("pod-crashes", "3 restarts, last end: OOMKilled, exit code 137", out_of_memory),
    Row("guard-absent", f"there is no Deployment {guard(NAME)}", deleted(DEPLOYMENTS, guard(NAME))),
    Row("guard-absent", f"expected: {GUARD_IMAGE}", guard_of_another_image),
    Row(
        "guard-absent",
        "no such manifest",
        guard_not_ready(waiting={"reason": "ErrImagePull", "message": "no such manifest"}),
    ),
    Row("guard-absent", "it runs, and reports that it cannot guard", guard_not_ready(running={})),
]


def answer(word: str, answer: tuple[float, ...] | Exception) -> Break:
    """Prometheus gives this answer to queries with that word."""

    def broken(region: Region) -> None:
        region.questions = (EvidenceQuery(asked_by="gate errors", query="sum(bad_total)\n/ sum(requests_total)"),)
        region.prometheus.answers[word] = answer

    return broken


def unknown(region: Region) -> None:
    answer("nothing", ())(region)
    region.prometheus.unknown = {"bad_total"}


EVIDENCE = [
    Row("prometheus-away", "p did not answer", answer("bad", PrometheusUnreachable("p did not answer"))),
    Row("prometheus-credential", "TOKEN is not set", answer("bad", CredentialMissing("TOKEN is not set"))),
    Row("prometheus-credential", "no org id", answer("bad", PrometheusDenied("401", detail="no org\nid"))),
    Row("query-never-answered", "parse error", answer("bad", PrometheusRefused("1:5: parse error"))),
    Row("query-never-answered", "gate errors asks for bad_total, of which there is no series", unknown),
    Row("query-without-samples", "the answer is NaN", answer("sum(bad", (float("nan"),))),
    Row("scrape-interval-differs", "is 5s: a look of 15s has 1.0 scrapes of each", answer("changes(", (15.0,))),
]

ROWS = [*ACCESS, *CONTROLLERS, *OF_THE_ROLLOUT, *TRAFFIC, *OF_PODS, *EVIDENCE]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.codes}: {row.says}")
async def test_it_is_found_by_its_code_and_no_other(row: Row) -> None:
    region = row.begin()
    row.broken(region)
    findings = await region.examined()
    assert {one.code for one in findings} == set(row.codes.split())
    finding = next(one for one in findings if one.code == row.codes.split()[0])
    said = (finding.what, *finding.evidence)
    assert any(row.says in each for each in said), said
    assert [each for each in said if "\n" in each] == []


def test_every_check_has_a_row() -> None:
    elsewhere = {"access-denied", "not-looked-at"}
    assert {check.code for check in CHECKS} - elsewhere == {row.codes.split()[0] for row in ROWS}
