"""What the API server takes from tidegate by its own policies: its objects, and nothing that would run anything else.

The expressions are evaluated by a CEL library here, and by a real API server in `tests/cluster/test_admission.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from fakes.clusters.admission import OBJECTS_OUTSIDE, OTHER, PODS_OUTSIDE, ROLLOUTS_OUTSIDE, Refusing, engine
from fakes.fleet import fleet_spec, region, release

from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.access import policy_names
from rollouts.manifests.objects.admission_policies import AdmissionScope
from rollouts.manifests.objects.engines.samples import request_object
from rollouts.manifests.render import render
from rollouts.manifests.schema import problems_in
from tidegate.core.model import Json

DRIVER = "system:serviceaccount:serving:support-llm-driver"
ARGO = "system:serviceaccount:argo-rollouts:argo-rollouts"
ALLOWED = "registry.example.com/support-llm"
CLAIM = {"pod": {"cache": {"claim": "weights", "secret": "store"}}}
FLEETS: dict[str, dict[str, Any]] = {
    "canary": {},
    "istio": {"traffic": "istio"},
    "keda": {"autoscale": {"min_replicas": 2, "max_replicas": 4}},
    "hpa": {"autoscale": {"by": "hpa", "min_replicas": 2, "max_replicas": 4}},
    "shared cache": CLAIM,
    "warm pool": {"warm_pool": {"share": "50%"}},
    "inside": {"gateway": {"name": "users", "hosts": ["llm.example.com"], "direct": {"name": "inside"}}},
    "spot": {"nodes": {"capacity": "spot", "cloud": "aws"}},
}
ANALYSIS: Json = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "AnalysisTemplate",
    "metadata": {"name": "support-llm.ttft-background"},
    "spec": {
        "args": [{"name": "prometheus", "value": "http://prometheus:9090"}],
        "metrics": [{"name": "burn", "count": 1, "provider": {"prometheus": {"address": "a", "query": "q"}}}],
    },
}
MONITOR: Json = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PodMonitor",
    "metadata": {"name": "support-llm-engines"},
    "spec": {"selector": {}, "podMetricsEndpoints": [{"port": "http"}]},
}


def objects(
    *parts: RenderPart,
    keys: str = "key\n",
    repositories: tuple[str, ...] = (ALLOWED,),
    samples: bool = False,
    **changes: Any,
) -> list[Json]:
    return list(
        render(
            fleet_spec(**changes),
            release(public_keys=keys),
            analyses=[ANALYSIS],
            monitors=[MONITOR],
            admitted=AdmissionScope(repositories=repositories),
            parts=parts,
            samples=samples,
        )
    )


POLICIES: dict[str, Refusing] = {}
"""Those of a fleet are read once."""


def refused(
    change: Callable[[Json], object], kind: str = "Rollout", *, user: str = DRIVER, **changes: Any
) -> list[str]:
    """What the policies say to an object that is as tidegate writes it, but for the change."""
    wanted = copy.deepcopy(next(each for each in objects(RenderPart.SERVING, **changes) if each["kind"] == kind))
    change(wanted)
    alike = repr(changes)
    if alike not in POLICIES:
        POLICIES[alike] = Refusing(objects(RenderPart.ADMISSION, **changes))
    return POLICIES[alike].refusals(wanted, user=user)


def engine_pod(**changes: Any) -> Json:
    """As Argo Rollouts' ReplicaSet makes it."""
    template = objects(RenderPart.SERVING, **changes)[-1]["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**copy.deepcopy(template["metadata"]), "name": "support-llm-1", "namespace": "serving"},
        "spec": copy.deepcopy(template["spec"]),
    }


@pytest.mark.parametrize(
    ("changes", "keys"),
    [({}, ""), *((changes, "key\n") for changes in FLEETS.values())],
    ids=["unsigned", *FLEETS],
)
def test_all_that_a_delivery_writes_is_let_in(changes: dict[str, Any], keys: str) -> None:
    policies = Refusing(objects(RenderPart.ADMISSION, keys=keys, **changes))
    serving = objects(RenderPart.SERVING, keys=keys, **changes)
    for each in serving:
        assert policies.refusals(each, user=DRIVER) == [], each["kind"]
        assert policies.refusals(each, user=DRIVER, old=each) == [], each["kind"]
    assert policies.refusals(engine_pod(keys=keys, **changes), user=ARGO) == []


def test_what_asks_engines_to_keep_samples_is_let_in_where_the_spec_asks_for_it() -> None:
    asked = request_object("support-llm", "{}")
    asked["metadata"]["namespace"] = "serving"
    policies = Refusing(objects(RenderPart.ADMISSION, samples=True))
    for each in (*objects(RenderPart.SERVING, samples=True), asked):
        assert policies.refusals(each, user=DRIVER) == [], each["kind"]
    assert policies.refusals(engine_pod(samples=True), user=ARGO) == []
    # Where an administrator has not said yet whose signatures engines believe, nobody else says it.
    keys = {**asked, "metadata": {**asked["metadata"], "name": "support-llm-keys"}}
    assert policies.refusals(keys, user=DRIVER) == [
        "the one ConfigMap is support-llm-samples, which asks engines to keep samples"
    ]
    assert any("volumes" in each for each in _refused_without_samples())


def _refused_without_samples() -> list[str]:
    rollout = next(each for each in objects(RenderPart.SERVING, samples=True) if each["kind"] == "Rollout")
    return Refusing(objects(RenderPart.ADMISSION)).refusals(rollout, user=DRIVER)


@pytest.mark.parametrize("changes", FLEETS.values(), ids=FLEETS)
def test_each_is_valid_to_the_letter_and_bound_and_may_be_looked_at(changes: dict[str, Any]) -> None:
    found = objects(RenderPart.ADMISSION, **changes)
    assert {each["metadata"]["name"]: problems for each in found if (problems := problems_in(each))} == {}
    names = [each["metadata"]["name"] for each in found if each["kind"] == "ValidatingAdmissionPolicy"]
    bound = [each["spec"]["policyName"] for each in found if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    site = Site(fleet=fleet_spec(**changes), release=release())
    assert names == bound == list(policy_names(site))


@pytest.mark.parametrize(("change", "reason"), ROLLOUTS_OUTSIDE.values(), ids=ROLLOUTS_OUTSIDE)
def test_a_rollout_that_would_run_anything_else_is_refused(change: Callable[[Json], object], reason: str) -> None:
    said = refused(change, **CLAIM)
    assert any(reason in each for each in said), said


def test_the_guard_of_a_region_is_held_as_the_driver_is() -> None:
    guard = "system:serviceaccount:serving:support-llm-guard"
    assert refused(lambda it: None, user=guard) == []
    assert refused(lambda it: engine(it).update(image=OTHER), user=guard) != []


def test_whose_business_is_none_of_tidegates_is_let_alone() -> None:
    assert refused(lambda it: engine(it).update(image=OTHER), user="kubernetes-admin") == []


def test_where_no_repository_is_named_any_is_let_in_by_digest() -> None:
    assert refused(lambda it: engine(it).update(image=OTHER), repositories=()) == []
    assert refused(lambda it: engine(it).update(image=f"{ALLOWED}:7"), repositories=()) != []


def test_all_below_a_path_is_let_in_and_nothing_next_to_it() -> None:
    paths = ("registry.example.com/team/*",)
    inside, outside = "registry.example.com/team/a/b:7", "registry.example.com/teams/a"
    assert refused(lambda it: engine(it).update(image=f"{inside}@sha256:{'7' * 64}"), repositories=paths) == []
    assert refused(lambda it: engine(it).update(image=f"{outside}@sha256:{'7' * 64}"), repositories=paths) != []


def test_no_policy_that_was_narrowed_keeps_anybody_from_pausing_or_aborting() -> None:
    serving = objects(RenderPart.SERVING)[-1]
    narrowed = Refusing(objects(RenderPart.ADMISSION, repositories=("registry.example.com/other",)))
    assert narrowed.refusals(serving, user=DRIVER) != []
    paused = copy.deepcopy(serving)
    paused["spec"]["paused"] = True
    paused["metadata"]["annotations"] = {"tidegate.dev/carrier": "4"}
    assert narrowed.refusals(paused, user=DRIVER, old=serving) == []


@pytest.mark.parametrize(("kind", "change", "reason"), OBJECTS_OUTSIDE.values(), ids=OBJECTS_OUTSIDE)
def test_an_object_that_is_not_the_deliverys_is_refused(
    kind: str, change: Callable[[Json], object], reason: str
) -> None:
    said = refused(change, kind)
    assert any(reason in each for each in said), said


def test_an_object_of_others_is_not_taken_over_by_a_label() -> None:
    ours = next(each for each in objects(RenderPart.SERVING) if each["kind"] == "PodMonitor")
    theirs = {**ours, "metadata": {**ours["metadata"], "labels": {"team": "payments"}}}
    said = Refusing(objects(RenderPart.ADMISSION)).refusals(ours, user=DRIVER, old=theirs)
    assert said == ["tidegate writes objects with the label tidegate.dev/delivery=support-llm alone"]


def test_copies_to_the_canary_are_let_in() -> None:
    copies = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "support-llm-canary", "port": 80}}}
    assert refused(lambda it: it["spec"]["rules"][0].update(filters=[copies]), "HTTPRoute") == []


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it["spec"]["template"]["spec"]["containers"][0].update(image=OTHER),
        lambda it: it["spec"]["template"]["spec"].update(serviceAccountName="support-llm-driver"),
        lambda it: it["spec"]["template"]["spec"].update(hostNetwork=True),
        lambda it: it["metadata"].update(name="miner"),
    ],
    ids=["image", "account", "network", "name"],
)
def test_placeholders_hold_room_and_do_nothing(change: Callable[[Json], object]) -> None:
    assert refused(change, "Deployment", warm_pool={}) != []


@pytest.mark.parametrize("change", PODS_OUTSIDE.values(), ids=PODS_OUTSIDE)
def test_no_pod_passes_for_an_engine_no_matter_who_makes_it(change: Callable[[Json], object]) -> None:
    pod = engine_pod()
    change(pod)
    assert Refusing(objects(RenderPart.ADMISSION)).refusals(pod, user="kubernetes-admin") != []


def test_a_mesh_may_put_its_proxy_next_to_an_engine() -> None:
    pod = engine_pod()
    pod["spec"]["containers"].append({"name": "istio-proxy", "image": "docker.io/istio/proxyv2:1.30"})
    pod["spec"]["volumes"].append({"name": "istio-token", "projected": {"sources": []}})
    assert Refusing(objects(RenderPart.ADMISSION)).refusals(pod, user=ARGO) == []


URL = "https://mimir.example.com"
SECRET = {"name": "prometheus", "key": "token"}
BEARER = {
    "autoscale": {"min_replicas": 2, "max_replicas": 4},
    "regions": {
        "eu-west-1": region("eu-west-1", prometheus={"url": URL, "auth": {"bearer": {"secret": SECRET}}}),
    },
}


def reads(it: Json, secret: str, address: str) -> None:
    it["spec"]["args"].append({"name": "a", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}})
    it["spec"]["metrics"][0]["provider"]["prometheus"]["address"] = address


def test_an_analysis_hands_the_credentials_of_prometheus_to_prometheus_alone() -> None:
    assert refused(lambda it: reads(it, "prometheus", URL), "AnalysisTemplate", **BEARER) == []
    reason = "an analysis reads no Secret but those of Prometheus, for it alone"
    for secret, address in (("prometheus", "https://evil.example"), ("prometheus", "{{args.a}}"), ("other", URL)):
        assert refused(lambda it, s=secret, a=address: reads(it, s, a), "AnalysisTemplate", **BEARER) == [reason]
    assert refused(lambda it: None, "AnalysisTemplate", **BEARER) == []


def test_an_autoscaler_hands_them_to_prometheus_alone() -> None:
    assert refused(lambda it: None, "ScaledObject", **BEARER) == []

    def trigger(it: Json) -> Json:
        found: Json = it["spec"]["triggers"][0]
        return found

    elsewhere = refused(
        lambda it: trigger(it)["metadata"].update(serverAddress="https://evil.example"), "ScaledObject", **BEARER
    )
    another = refused(lambda it: trigger(it).update(authenticationRef={"name": "other"}), "ScaledObject", **BEARER)
    assert elsewhere == another != []
