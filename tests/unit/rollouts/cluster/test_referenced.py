"""A Rollout of others, by reference: what is written to it, what is read, and what its owner may do meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
from fakes.clusters.region import DELIVERER, a_release
from fakes.clusters.their_region import NAME, NAMESPACE, ONE, STEPS, THEIRS, TWO, TheirRegion, place_of, up
from fakes.kube.store import Event

from rollouts.cluster.reference import RegionNotes
from rollouts.cluster.referenced import TrialNeeds, misfits
from rollouts.cluster.snapshot import RegionSnapshot
from rollouts.errors import Overruled, Unfit
from rollouts.kube.objects import is_ready
from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, INFERENCE_POOLS, PODS, REPLICA_SETS, ROLLOUTS
from rollouts.manifests.objects.access import guard_rights
from rollouts.model import RegionPhase
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH
from tidegate.testing import START, versions


@pytest.fixture
async def region() -> TheirRegion:
    return await up()


async def test_a_version_is_served_by_their_fields_and_their_steps(region: TheirRegion) -> None:
    assert versions(await region.fleet.observe()) == ("1", None, None)
    template = region.rollout["spec"]["template"]
    state = await region.fleet.deploy(TWO)
    assert (versions(state), state.weight) == (("1", "2", None), 10)
    template["spec"]["containers"][0]["image"] = TWO.image
    assert region.rollout["spec"]["template"] == template, "nothing was added"
    assert (await region.fleet.shift(50)).weight == 50
    state = await region.fleet.promote()
    assert (versions(state)[0], state.phase) == ("2", RegionPhase.STEADY)
    await region.fleet.settle()
    assert {each.split()[0] for each in region.written} == {"Rollout", "HTTPRoute"}
    assert set(region.rollout["metadata"].get("annotations", {})) - {"meta.helm.sh/release-name"} <= {
        "tidegate.dev/carrier",
        "tidegate.dev/woken",
        "rollout.argoproj.io/revision",
    }


async def test_the_way_back_needs_nobody_who_knows_the_versions(region: TheirRegion) -> None:
    """Neither a plan nor MLflow: a rollback from another machine reads the Lease."""
    before = deepcopy(region.rollout["spec"])
    await region.fleet.deploy(TWO)
    other = region.open(engines=(), carrier=DELIVERER.model_copy(update={"token": "back", "insists": True}))
    assert versions(await other.observe()) == ("1", "2", None)
    state = await other.rollback(None)
    assert (versions(state), region.weight) == (("1", None, None), 0)
    assert region.rollout["spec"] == before


async def test_after_a_promotion_the_version_before_is_started_from_their_history(region: TheirRegion) -> None:
    await region.fleet.deploy(TWO)
    await region.fleet.promote()
    assert await region.fleet.way_back() == "1"
    state = await region.fleet.restart("1")
    assert (versions(state)[0], region.weight) == ("1", 0)


async def test_the_same_version_again_after_it_was_taken_back(region: TheirRegion) -> None:
    await region.fleet.deploy(TWO)
    await region.fleet.rollback(None)
    assert versions(await region.fleet.deploy(TWO))[1] == "2"
    assert len(region.cluster.list(REPLICA_SETS)) == 2


@pytest.mark.parametrize("version", ["again", "third"])
async def test_their_owner_applies_in_the_middle(region: TheirRegion, version: str) -> None:
    await region.fleet.deploy(TWO)
    image = ONE.image if version == "again" else "registry.example/theirs@sha256:" + "9" * 64

    def change(body: Json) -> None:
        body["spec"]["template"]["spec"]["containers"][0]["image"] = image

    region.apply(change)
    await region.time.sleep(20)
    state = await region.fleet.observe()
    assert state.foreign_change is not None
    assert "somebody changed Rollout chat" in state.foreign_change.reason
    before = region.rollout["spec"]
    await region.fleet.rollback(None)
    assert region.rollout["spec"] == before, "what its owner asked for stays"


async def test_their_owner_applies_while_the_next_weight_is_awaited(region: TheirRegion) -> None:
    await region.fleet.deploy(TWO)
    region.time.call_later(1, region.apply)
    with pytest.raises(Overruled, match="asks for version 1 again"):
        await region.fleet.shift(50)


async def test_versions_by_arguments_and_variables() -> None:
    def named(rollout: Json) -> None:
        engine = rollout["spec"]["template"]["spec"]["containers"][0]
        engine["args"] = ["--model", "chat", "--revision=v1", "--served-model-name", "chat-1"]
        engine["env"] = [{"name": "VERSION", "value": "1"}, {"name": "TOKEN", "valueFrom": {"secretKeyRef": {}}}]

    fields = {
        "args": {"--revision": "v{version}", "--served-model-name": "chat-{version}"},
        "env": {"VERSION": "{version}"},
    }
    region = await up(change=named, **fields)
    assert versions(await region.fleet.deploy(TWO)) == ("1", "2", None)
    engine = region.rollout["spec"]["template"]["spec"]["containers"][0]
    assert engine["args"] == ["--model", "chat", "--revision=v2", "--served-model-name", "chat-2"]
    assert [each.get("value") for each in engine["env"]] == ["2", None]


def _canary(**fields: Any) -> Any:
    return lambda rollout: rollout["spec"]["strategy"]["canary"].update(fields)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_canary(steps=[{"setWeight": 10}, {"pause": {"duration": "5m"}}]), 'step 2 ends by itself: {"op": "replace"'),
        (_canary(steps=[{"setWeight": 10}, {"setWeight": 50}, {"pause": {}}]), "nobody judges step 1"),
        (_canary(steps=[{"setWeight": 20}, {"pause": {}}]), "no step has 10 % of users; its steps have 20 %"),
        (_canary(steps=[]), "no step has 10 % of users; its steps have none"),
        (_canary(trafficRouting=None), "it has no trafficRouting"),
        (_canary(stableService="other"), "stableService is other"),
        (_canary(dynamicStableScale=True), "dynamicStableScale leaves users on a canary that was aborted"),
        (lambda rollout: rollout["spec"].update(rollbackWindow={"revisions": 3}), "rollbackWindow"),
        (
            lambda rollout: rollout["spec"]["template"]["spec"]["containers"][0].update(name="engine"),
            "container vllm has not, or not once, image",
        ),
        (
            lambda rollout: rollout["spec"]["template"]["spec"]["containers"][0].update(image="chat:7"),
            "what serves is no version that is known here",
        ),
    ],
)
def test_a_rollout_that_does_not_fit_is_told_with_what_makes_it_right(change: Any, told: str) -> None:
    place = place_of()
    *_, route, rollout = deepcopy(a_release(THEIRS, NAMESPACE))
    rollout["spec"]["strategy"]["canary"]["steps"] = deepcopy(STEPS)
    rollout["spec"]["template"]["spec"]["containers"][0]["image"] = ONE.image
    change(rollout)
    rollout["metadata"]["uid"], rollout["status"] = "u", {"stableRS": "h", "currentPodHash": "h"}
    owned = {"ownerReferences": [{"uid": "u", "controller": True}], "labels": {POD_TEMPLATE_HASH: "h"}}
    served = {"metadata": owned, "spec": {"template": rollout["spec"]["template"]}}
    notes = RegionNotes().knowing(place.theirs, ONE)  # type: ignore[arg-type]  # it has one
    snapshot = RegionSnapshot(START, place, rollout, (served,), route, notes=notes)
    assert told in "; ".join(misfits(snapshot, place.theirs, TrialNeeds(weights=(10,))))  # type: ignore[arg-type]


async def test_nothing_is_written_to_one_that_does_not_fit() -> None:
    region = await up(change=_canary(steps=[{"setWeight": 20}, {"pause": {}}]))
    before, fleet = deepcopy(region.rollout["spec"]), region.open(TrialNeeds(weights=(10,)))
    for operation in (fleet.foreign_objects, lambda: fleet.deploy(TWO)):
        with pytest.raises(Unfit, match="no step has 10 % of users; its steps have 20 %"):
            await operation()
    assert region.rollout["spec"] == before


async def test_stages_before_users_need_a_step_without_any(region: TheirRegion) -> None:
    with pytest.raises(Unfit, match=r"smoke come before users.*setCanaryScale"):
        await region.open(TrialNeeds(dark="smoke")).foreign_objects()


async def test_series_have_to_carry_the_hash(region: TheirRegion) -> None:
    asked = list[str]()

    async def scraped(pod_hash: str) -> bool:
        asked.append(pod_hash)
        return False

    with pytest.raises(Unfit, match=r"podTargetLabels: \[rollouts-pod-template-hash\]"):
        await region.open(scraped=scraped).foreign_objects()
    assert asked == [region.rollout["status"]["stableRS"]]


async def test_another_deliverys_rollout_is_not_theirs(region: TheirRegion) -> None:
    def label(body: Json) -> None:
        body["metadata"].setdefault("labels", {})["tidegate.dev/delivery"] = "other"

    region.cluster.edit(ROLLOUTS, THEIRS, lambda body: label(body) and None)
    (found,) = await region.fleet.foreign_objects()
    assert str(found).startswith("Rollout chat in support is not tidegate's (of delivery other")


async def test_a_rollout_with_the_template_of_a_deployment() -> None:
    region = await up(workload="engines")
    before, spec = deepcopy(region.cluster.get(DEPLOYMENTS, "engines")["spec"]), deepcopy(region.rollout["spec"])
    assert versions(await region.fleet.deploy(TWO)) == ("1", "2", None)
    engine = region.cluster.get(DEPLOYMENTS, "engines")["spec"]["template"]["spec"]["containers"][0]
    assert engine["image"] == TWO.image
    state = await region.fleet.rollback(None)
    assert (versions(state), region.weight) == (("1", None, None), 0)
    assert region.cluster.get(DEPLOYMENTS, "engines")["spec"] == before
    await region.fleet.deploy(TWO)
    assert versions(await region.fleet.promote())[0] == "2"
    assert region.rollout["spec"] == spec
    assert {each.split()[0] for each in region.written} == {"Rollout", "HTTPRoute", "Deployment"}


async def test_the_owner_of_the_deployment_applies_it_in_the_middle() -> None:
    region = await up(workload="engines")
    before = deepcopy(region.cluster.get(DEPLOYMENTS, "engines")["spec"])
    await region.fleet.deploy(TWO)
    region.cluster.edit(DEPLOYMENTS, "engines", lambda live: live["spec"].update(before) and None)
    await region.time.sleep(20)
    state = await region.fleet.observe()
    assert state.foreign_change is not None
    assert "asks for version 1 again" in state.foreign_change.reason


async def test_a_controller_that_has_not_seen_the_deployment_is_waited_for() -> None:
    region = await up(workload="engines")
    region.simulation.controller_down = True
    await region.time.sleep(1)
    region.cluster.edit(DEPLOYMENTS, "engines", lambda live: live["spec"].update(minReadySeconds=1) and None)
    await region.time.sleep(90)
    state = await region.fleet.observe()
    assert state.problem is not None
    assert "for the reference workload since" in state.problem


async def test_a_workload_of_another_name_is_told() -> None:
    region = await up(workload="engines")
    region.cluster.edit(ROLLOUTS, THEIRS, lambda live: live["spec"]["workloadRef"].update(name="other") and None)
    with pytest.raises(Unfit, match="that of Deployment other"):
        await region.fleet.foreign_objects()


@pytest.mark.parametrize("workload", [None, "engines"])
def test_the_deployment_is_written_where_it_is_named_alone(workload: str | None) -> None:
    rights = guard_rights(NAME, THEIRS, HTTP_ROUTES, THEIRS, workload or "")
    granted = [(each.verbs, each.names) for each in rights if each.resource == DEPLOYMENTS]
    assert granted == ([(("get", "patch"), ("engines",))] if workload else [])


FOR_POOLS = [{"setCanaryScale": {"replicas": 1}}, {"pause": {}}, *STEPS, {"setWeight": 100}, {"pause": {}}]


def for_pools(rollout: Json) -> None:
    rollout["spec"]["strategy"]["canary"]["steps"] = deepcopy(FOR_POOLS)


def members(region: TheirRegion, arm: str) -> str | None:
    """The hash of the pods that an arm's pool has; None while it has those of every version."""
    found = region.cluster.get(INFERENCE_POOLS, f"{THEIRS}-{arm}")
    labels: Mapping[str, str] = found["spec"]["selector"]["matchLabels"]
    return labels.get(POD_TEMPLATE_HASH)


async def test_pools_have_members_whenever_they_have_users() -> None:
    region = await up(change=for_pools, pools=True)
    seen = list[tuple[int, bool, bool]]()

    def look(event: Event) -> None:
        """The share of the canary, and whether each pool with users has a ready pod, at every change."""
        if event.kind.plural in {HTTP_ROUTES.plural, INFERENCE_POOLS.plural, PODS.plural, REPLICA_SETS.plural}:
            weight = region.weight
            seen.append((weight, weight == 100 or filled(region, "stable"), not weight or filled(region, "canary")))

    await region.fleet.deploy(TWO)
    one, two = members(region, "stable"), members(region, "canary")
    assert (one, two) == tuple(region.fleet.series_of(each) for each in ("1", "2"))
    region.cluster.on_change(look)
    await region.fleet.shift(50)
    state = await region.fleet.rollback(None)
    assert (versions(state), region.weight, members(region, "stable")) == (("1", None, None), 0, one)
    await region.fleet.deploy(TWO)
    await region.fleet.shift(50)
    assert versions(await region.fleet.promote())[0] == "2"
    assert (members(region, "stable"), region.weight) == (two, 0)
    assert {each for _, *both in seen for each in both} == {True}
    assert {weight for weight, *_ in seen} >= {0, 50, 100}


def filled(region: TheirRegion, arm: str) -> bool:
    chosen = f"{POD_TEMPLATE_HASH}={members(region, arm)}"
    return any(map(is_ready, region.cluster.list(PODS, labels=chosen)))


async def test_a_promotion_that_died_halfway_goes_back_with_its_pool() -> None:
    region = await up(change=for_pools, pools=True)
    await region.fleet.deploy(TWO)
    before, after = members(region, "stable"), members(region, "canary")
    region.cluster.edit(
        INFERENCE_POOLS,
        f"{THEIRS}-stable",
        lambda pool: pool["spec"]["selector"].update(matchLabels={POD_TEMPLATE_HASH: after}),
    )
    await region.fleet.rollback(None)
    assert (members(region, "stable"), region.weight) == (before, 0)


async def test_steps_that_leave_a_pool_empty_are_told() -> None:
    region = await up(pools=True)
    with pytest.raises(Unfit, match=r"members of its InferencePool come before users.*") as caught:
        await region.fleet.foreign_objects()
    assert '{"op": "add", "path": "/spec/strategy/canary/steps/-", "value": {"setWeight": 100}}' in str(caught.value)


async def test_what_a_gateway_says_of_the_route_is_told() -> None:
    region = await up(change=for_pools, pools=True)
    said = {"type": "ResolvedRefs", "status": "False", "reason": "InvalidKind", "message": "no pools here"}
    parent = {"parentRef": {"name": "gate"}, "controllerName": "example/gateway"}

    def refused(route: Json) -> None:
        seen = {"observedGeneration": route["metadata"]["generation"]}
        route["status"] = {"parents": [{**parent, "conditions": [{**said, **seen}, {"type": "Accepted", **seen}]}]}

    region.cluster.edit(HTTP_ROUTES, THEIRS, refused, subresource="status", manager="gateway")
    with pytest.raises(Unfit, match=r"gateway gate .* says ResolvedRefs is false, InvalidKind: no pools here"):
        await region.fleet.foreign_objects()
