"""The simulation itself: it comes to rest, is the same every time, and lives in both kinds of time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.argo.scene import NAME, Scene, canary
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rollouts.argo.state import phase_of
from rollouts.kube.resources import ROLLOUTS
from tidegate.core.model import Json


def a_day() -> list[Json]:
    scene = Scene(canary(scaleDownDelaySeconds=3600), rollbackWindow={"revisions": 3})
    for version in ("2", "3", "2"):
        scene.deploy(version)
        scene.wait(3600)
        scene.promote_full()
        scene.wait(3600)
    return [body for kind in scene.cluster.kinds for body in scene.cluster.store.all(kind)]


def test_the_same_day_ends_in_the_same_cluster() -> None:
    assert a_day() == a_day()


def test_at_rest_nothing_is_written() -> None:
    scene = Scene()
    version = scene.cluster.store.version
    scene.wait(86_400)
    assert scene.cluster.store.version == version


def test_a_version_that_is_kept_warm_for_longer_than_the_progress_deadline_is_not_waited_for() -> None:
    """`isWaitingForReplicaSetScaleDown` of argo-rollouts (#3417)."""
    scene = Scene(canary(scaleDownDelaySeconds=3600), progressDeadlineSeconds=300)
    scene.deploy("2")
    scene.wait(60)
    scene.promote_full()
    scene.wait(1200)
    assert phase_of(scene.rollout).phase == "Healthy"


ACTIONS: dict[str, Callable[[Scene], None]] = {
    "one": lambda scene: scene.deploy("1"),
    "two": lambda scene: scene.deploy("2"),
    "three": lambda scene: scene.deploy("3"),
    "resume": lambda scene: scene.resume(),
    "skip": lambda scene: scene.say(pauseConditions=None, currentStepIndex=1),
    "abort": lambda scene: scene.abort(),
    "full": lambda scene: scene.promote_full(),
    "pause": lambda scene: scene.change(paused=True),
    "go on": lambda scene: scene.change(paused=False),
    "scale": lambda scene: scene.change(replicas=7),
    "nothing": lambda scene: scene.change(replicas=0),
    "crash": lambda scene: scene.simulation.crash("2"),
    "heal": lambda scene: scene.simulation.crash("2", on=False),
    "break": lambda scene: setattr(scene.simulation, "plugin_broken", True),
    "mend": lambda scene: setattr(scene.simulation, "plugin_broken", False),
    "moment": lambda scene: scene.wait(5),
    "minutes": lambda scene: scene.wait(200),
}
STRATEGIES = {
    "routed": canary(scaleDownDelaySeconds=100),
    "dynamic": canary(dynamicStableScale=True),
}


@pytest.mark.long
@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.sampled_from(sorted(STRATEGIES)), st.lists(st.sampled_from(sorted(ACTIONS)), min_size=3, max_size=15))
def test_whatever_is_done_it_comes_to_rest(strategy: str, story: list[str]) -> None:
    scene = Scene(STRATEGIES[strategy], rollbackWindow={"revisions": 2})
    for action in story:
        ACTIONS[action](scene)
        rollout_now = scene.rollout
        assert phase_of(rollout_now).phase
        weights = rollout_now["status"].get("canary", {}).get("weights")
        assert weights is None or weights["canary"]["weight"] + weights["stable"]["weight"] == 100
    scene.simulation.crash("2", on=False)
    scene.simulation.plugin_broken = False
    scene.change(paused=False, replicas=4)
    scene.deploy("9")
    scene.wait(120)
    scene.promote_full()
    scene.wait(120)
    assert (scene.phase, scene.serves["stable"], scene.pods["9"]) == ("Healthy", "9", 4)


@pytest.mark.parametrize(("after", "heard"), [(0.01, False), (0.1, True)])
def test_a_patch_just_after_the_controllers_own_write_is_lost_until_another_one(after: float, heard: bool) -> None:
    """Up to 1.9.1: `abort` shows, and nothing follows."""
    scene = Scene()
    scene.deploy("2")
    scene.wait(60)
    scene.simulation.loses_writes_within = 0.05
    scene.resume()
    scene.cluster.time.advance(after)  # type: ignore[attr-defined]
    scene.cluster.patch(ROLLOUTS, NAME, {"status": {"abort": True}}, subresource="status", manager="tidegate")
    scene.wait(60)
    assert scene.status.get("abort")
    assert ("abortedAt" in scene.status) is heard
    scene.cluster.patch(ROLLOUTS, NAME, {"metadata": {"annotations": {"woken": "1"}}}, manager="tidegate")
    scene.wait(1)
    assert "abortedAt" in scene.status


@pytest.mark.parametrize(
    ("fields", "at", "weight", "pods"),
    [
        ({}, 50, 0, {"1": 4}),
        ({}, 100, 0, {"1": 4}),
        ({"minPodsPerReplicaSet": 2}, 50, 25, {"1": 3, "2": 2}),
        ({"abortScaleDownDelaySeconds": 300}, 50, 25, {"1": 3, "2": 2}),
        ({"abortScaleDownDelaySeconds": 300, "minPodsPerReplicaSet": 2}, 50, 25, {"1": 3, "2": 2}),
        ({"abortScaleDownDelaySeconds": 300}, 100, 75, {"1": 1, "2": 4}),
    ],
)
def test_an_abort_of_a_stable_that_follows_its_weight_ends_as_with_1_9_1(
    fields: Json, at: int, weight: int, pods: dict[str, int]
) -> None:
    """What the real one was seen to do; the status says no more than `RolloutAborted` in every case."""
    steps = [step for share in (5, 25, 50, 75, 100) for step in ({"setWeight": share}, {"pause": {}})]
    scene = Scene(canary(dynamicStableScale=True, steps=steps, **fields))
    scene.deploy("2")
    scene.wait(60)
    while scene.weight < at:
        scene.resume()
        scene.wait(60)
    scene.abort()
    scene.wait(600)
    assert (scene.weight, scene.pods) == (weight, pods)
    assert scene.phase.startswith("Degraded RolloutAborted")
