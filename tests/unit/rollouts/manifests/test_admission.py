"""What the API server takes from tidegate by its own policies: its engines, and nothing that would run other pods.

The expressions are evaluated by a CEL library here; a real API server is asked for all that they refuse, in
`tests/cluster/test_admission.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from fakes.clusters.admission import OTHER, Refusing, engine
from fakes.fleet import fleet_spec, release
from fakes.schemas import problems_in

from rollouts.manifests.admission import policy_names
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Site
from rollouts.manifests.render import render
from tidegate.core.model import Json

DRIVER = "system:serviceaccount:serving:support-llm-driver"
ARGO = "system:serviceaccount:argo-rollouts:argo-rollouts"
ALLOWED = "registry.example.com/support-llm"
CLAIM = {"pod": {"cache": {"claim": "weights", "secret": "store"}}}
FLEETS: dict[str, dict[str, Any]] = {"canary": {}, "istio": {"traffic": "istio"}, "shared cache": CLAIM}
ANALYSIS: Json = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "AnalysisTemplate",
    "metadata": {"name": "support-llm.ttft-background"},
    "spec": {
        "args": [{"name": "prometheus", "value": "http://prometheus:9090"}],
        "metrics": [{"name": "burn", "count": 1, "provider": {"prometheus": {"address": "a", "query": "q"}}}],
    },
}


def objects(
    *parts: RenderPart, keys: str = "key\n", repositories: tuple[str, ...] = (ALLOWED,), **changes: Any
) -> list[Json]:
    engine_of = release(public_keys=keys, repositories=repositories)
    return list(render(fleet_spec(admission=True, **changes), engine_of, analyses=[ANALYSIS], parts=parts))


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
        POLICIES[alike] = Refusing(objects(RenderPart.SETUP, **changes))
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
    policies = Refusing(objects(RenderPart.SETUP, keys=keys, **changes))
    serving = objects(RenderPart.SERVING, keys=keys, **changes)
    for each in serving:
        assert policies.refusals(each, user=DRIVER) == [], each["kind"]
        assert policies.refusals(each, user=DRIVER, old=each) == [], each["kind"]
    assert policies.refusals(engine_pod(keys=keys, **changes), user=ARGO) == []


@pytest.mark.parametrize("changes", FLEETS.values(), ids=FLEETS)
def test_each_is_valid_to_the_letter_and_bound_and_may_be_looked_at(changes: dict[str, Any]) -> None:
    found = [each for each in objects(RenderPart.SETUP, **changes) if "AdmissionPolicy" in each["kind"]]
    assert {each["metadata"]["name"]: problems for each in found if (problems := problems_in(each))} == {}
    names = [each["metadata"]["name"] for each in found if each["kind"] == "ValidatingAdmissionPolicy"]
    bound = [each["spec"]["policyName"] for each in found if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    site = Site(fleet=fleet_spec(admission=True, **changes), release=release())
    assert names == bound == list(policy_names(site))


def test_a_cluster_gets_none_unless_the_spec_asks_for_them() -> None:
    assert not [each for each in render(fleet_spec(), release(driver=True)) if "Admission" in each["kind"]]


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
    narrowed = Refusing(objects(RenderPart.SETUP, repositories=("registry.example.com/other",)))
    assert narrowed.refusals(serving, user=DRIVER) != []
    paused = copy.deepcopy(serving)
    paused["spec"]["paused"] = True
    paused["metadata"]["annotations"] = {"tidegate.dev/carrier": "4"}
    assert narrowed.refusals(paused, user=DRIVER, old=serving) == []


def test_a_mesh_may_put_its_proxy_next_to_an_engine() -> None:
    pod = engine_pod()
    pod["spec"]["containers"].append({"name": "istio-proxy", "image": "docker.io/istio/proxyv2:1.30"})
    pod["spec"]["volumes"].append({"name": "istio-token", "projected": {"sources": []}})
    assert Refusing(objects(RenderPart.SETUP)).refusals(pod, user=ARGO) == []
