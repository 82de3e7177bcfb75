"""The simulation itself: it comes to rest, is the same every time, and lives in both kinds of time."""

from __future__ import annotations

import pytest
from fakes.argo.scene import NAME, Scene, canary

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
