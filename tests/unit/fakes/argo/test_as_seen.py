"""The simulated controller does what Argo Rollouts 1.9.1 was seen to do on a cluster, in what deliveries rely on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from fakes.clusters.region import ClusterRegion, on_trial
from fakes.clusters.their_region import ONE, THEIRS, TWO, TheirRegion
from fakes.kube.store import Event

from rollouts.kube.objects import is_ready
from rollouts.kube.resources import HTTP_ROUTES, PODS, REPLICA_SETS, ROLLOUTS
from tidegate.core.model import Json

STEPS = [step for weight in (10, 50, 100) for step in ({"setWeight": weight}, {"pause": {}})]


async def theirs(*, steps: list[Json] = STEPS, replicas: int = 3, **strategy: Any) -> TheirRegion:
    """Version 1 serves; version 2 was just asked for and waits at the first pause."""

    def change(rollout: Json) -> None:
        rollout["spec"]["replicas"] = replicas
        rollout["spec"]["strategy"]["canary"].update(strategy, steps=steps)

    region = TheirRegion(change=change)
    await region.time.sleep(30)
    ask(region, TWO.image)
    await region.time.sleep(30)
    return region


def ask(region: TheirRegion, image: str, **labels: str) -> None:
    def change(body: Json) -> None:
        template = body["spec"]["template"]
        template["spec"]["containers"][0]["image"] = image
        template["metadata"]["labels"].update(labels)

    region.cluster.edit(ROLLOUTS, THEIRS, change, manager="tidegate")


def say(region: TheirRegion, **status: object) -> None:
    region.cluster.patch(ROLLOUTS, THEIRS, {"status": status}, subresource="status", manager="tidegate")


async def move(region: TheirRegion, weight: int) -> None:
    """To the step after the pause at which it waits, until that weight is there."""
    while region.weight < weight:
        say(region, pauseConditions=None, currentStepIndex=region.rollout["status"]["currentStepIndex"] + 1)
        await region.time.sleep(30)


def stands(region: TheirRegion) -> tuple[str, int, int]:
    """Phase, step and weight."""
    status = region.rollout["status"]
    return status["phase"], status["currentStepIndex"], region.weight


def ready(region: TheirRegion) -> Counter[str]:
    """Pods by image."""
    pods = region.cluster.list(PODS)
    return Counter(pod["spec"]["containers"][0]["image"] for pod in pods if is_ready(pod))


async def test_a_step_is_moved_an_abort_heard_and_the_template_set_back_without_a_step() -> None:
    region = await theirs()
    assert stands(region) == ("Paused", 1, 10)
    await move(region, 50)
    assert (stands(region), ready(region)[TWO.image]) == (("Paused", 3, 50), 2)
    say(region, abort=True)
    await region.time.sleep(1)
    assert stands(region) == ("Degraded", 0, 0)
    ask(region, ONE.image)
    await region.time.sleep(3)
    assert (stands(region), len(region.cluster.list(REPLICA_SETS))) == (("Healthy", 6, 0), 2)


async def test_their_owner_applies_again_at_10_percent_and_the_canarys_pods_stay_for_30_seconds() -> None:
    region = await theirs()
    region.apply()
    await region.time.sleep(2)
    assert stands(region) == ("Healthy", 6, 0)
    await region.time.sleep(20)
    assert ready(region)[TWO.image] == 1
    await region.time.sleep(20)
    assert ready(region) == Counter({ONE.image: 3})


async def test_one_added_label_makes_a_third_version_of_what_their_owner_applies() -> None:
    region = await theirs()
    ask(region, TWO.image, added="by-us")
    await region.time.sleep(30)
    ask(region, ONE.image)
    await region.time.sleep(30)
    assert (stands(region), len(region.cluster.list(REPLICA_SETS))) == (("Paused", 1, 10), 4)


@pytest.mark.parametrize("at", [10, 100])
async def test_a_promotion_keeps_users_where_they_are_until_engines_are_there(at: int) -> None:
    region, weights = await theirs(), list[int]()
    await move(region, at)
    region.cluster.on_change(lambda event: weights.append(region.weight) if event.kind.plural == "httproutes" else None)
    say(region, **{"promoteFull": True} if at == 10 else {"pauseConditions": None, "currentStepIndex": 6})
    await region.time.sleep(30)
    assert (stands(region), ready(region)[TWO.image]) == (("Healthy", 6, 0), 3)
    assert set(weights) <= {at, 0}


async def test_a_controller_that_comes_back_honours_the_abort_and_never_raises_the_weight() -> None:
    region = await theirs()
    await move(region, 50)
    region.simulation.controller_down = True
    say(region, abort=True)
    route = region.place.routes.weighted(region.cluster.get(HTTP_ROUTES, THEIRS), 0)
    region.cluster.update(HTTP_ROUTES, route, manager="tidegate")
    weights: list[int] = []
    region.cluster.on_change(lambda event: weights.append(region.weight))
    region.simulation.controller_down = False
    await region.time.sleep(2)
    assert (stands(region), set(weights)) == (("Degraded", 0, 0), {0})
    await region.time.sleep(27)
    assert ready(region)[TWO.image] == 2
    await region.time.sleep(5)
    assert ready(region)[TWO.image] == 0


@pytest.mark.parametrize(("after", "heard"), [(0.01, False), (0.1, True)])
async def test_a_patch_just_after_its_own_write_is_lost_until_another_one(after: float, heard: bool) -> None:
    """argo-rollouts#4073: `abort` shows, and nothing follows as long as no pod changes."""
    region = await theirs(steps=[{"setWeight": 10}, {"pause": {}}, {"setWeight": 20}, {"pause": {}}])
    region.simulation.loses_writes_within = 0.05
    region.cluster.patch(ROLLOUTS, THEIRS, {"status": {"pauseConditions": None}}, subresource="status")
    region.simulation.settle()
    await region.time.sleep(after)
    say(region, abort=True)
    await region.time.sleep(60)
    assert ("abortedAt" in region.rollout["status"]) is heard
    region.cluster.patch(ROLLOUTS, THEIRS, {"metadata": {"annotations": {"woken": "1"}}}, manager="tidegate")
    await region.time.sleep(1)
    assert "abortedAt" in region.rollout["status"]


async def test_at_a_promotion_pods_get_their_role_before_the_weights_move() -> None:
    """A pool that selects a role is empty while it has all users."""
    roles = {f"{arm}Metadata": {"labels": {"role": arm}} for arm in ("stable", "canary")}
    region, seen = await theirs(**roles), list[str]()
    await move(region, 100)

    def note(event: Event) -> None:
        before, after = ((body or {}).get("metadata", {}).get("labels") or {} for body in (event.before, event.after))
        if event.kind.plural == "pods" and (before.get("role"), after.get("role")) == ("canary", "stable"):
            seen.append("role")
        if event.kind.plural == "httproutes":
            seen.append(f"weight {region.weight}")

    region.cluster.on_change(note)
    say(region, pauseConditions=None, currentStepIndex=6)
    await region.time.sleep(10)
    assert seen == [*["role"] * 3, "weight 0"]


async def test_a_canary_without_an_engine_has_no_users_and_keeps_its_step() -> None:
    region = await theirs()
    await move(region, 50)
    region.simulation.crash(TWO.image)
    await region.time.sleep(5)
    assert stands(region)[1:] == (3, 0)


async def test_at_rest_nothing_is_written_though_a_version_is_warm_for_longer_than_the_progress_deadline() -> None:
    """`isWaitingForReplicaSetScaleDown` of argo-rollouts (#3417)."""
    region = ClusterRegion()
    await on_trial(region)
    await region.fleet.promote()
    await region.time.sleep(60)
    version = region.cluster.store.version
    await region.time.sleep(6000)
    assert (region.cluster.store.version, region.rollout["status"]["phase"]) == (version, "Healthy")
