"""The ways back: abort, retry, undo, the rollback window, and what stays warm for them."""

from __future__ import annotations

from fakes.argo.scene import Scene, canary

HALF = [{"setWeight": 50}, {"pause": {}}]


def half_way(**fields: object) -> Scene:
    scene = Scene(canary(**({"steps": HALF} | fields)))
    scene.deploy("2")
    scene.wait(30)
    assert (scene.weight, scene.step) == (50, 1)
    return scene


def test_an_abort_takes_all_users_away_at_once_and_is_degraded() -> None:
    scene = half_way()
    scene.abort()
    assert (scene.weight, scene.step) == (0, 0)
    assert scene.phase == "Degraded RolloutAborted: Rollout aborted update to revision 2"
    assert scene.serves == {"stable": "1", "canary": "1"}
    assert scene.status["abortedAt"] == "2026-01-01T00:01:00Z"
    assert "pauseConditions" not in scene.status


def test_an_aborted_canary_stays_up_for_thirty_seconds() -> None:
    scene = half_way()
    scene.abort()
    scene.wait(29)
    assert scene.pods == {"1": 4, "2": 2}
    scene.wait(1)
    assert scene.pods == {"1": 4}


def test_an_aborted_canary_stays_up_for_ever_with_a_delay_of_zero() -> None:
    steps = [{"setCanaryScale": {"replicas": 2}}, {"setWeight": 50}, {"pause": {}}]
    scene = Scene(canary(abortScaleDownDelaySeconds=0, steps=steps))
    scene.deploy("2")
    scene.wait(60)
    scene.abort()
    scene.wait(86_400)
    assert scene.pods == {"1": 4, "2": 2}


def test_a_retry_starts_again_at_the_first_step() -> None:
    scene = half_way()
    scene.abort()
    scene.wait(60)
    scene.retry()
    assert "abortedAt" not in scene.status
    scene.wait(30)
    assert (scene.phase, scene.weight, scene.step) == ("Paused CanaryPauseStep", 50, 1)


def test_a_new_version_ends_the_abort() -> None:
    scene = half_way()
    scene.abort()
    scene.deploy("3")
    scene.wait(30)
    assert "abort" not in scene.status
    assert (scene.phase, scene.weight) == ("Paused CanaryPauseStep", 50)


def test_going_back_to_the_stable_skips_all_steps() -> None:
    scene = half_way()
    scene.abort()
    scene.deploy("1")
    assert scene.phase == "Healthy"
    assert (scene.weight, scene.step) == (0, 2)
    assert scene.events("SkipSteps") == ["Rollback to stable ReplicaSets"]
    assert scene.revisions == {"1": 3, "2": 2}


def promoted(**spec: object) -> Scene:
    """Versions 1, 2 and 3 were stable one after another; all are warm for an hour."""
    scene = Scene(canary(steps=HALF, scaleDownDelaySeconds=3600), **spec)
    for version in ("2", "3"):
        scene.deploy(version)
        scene.wait(30)
        scene.promote_full()
        scene.wait(30)
        assert scene.phase == "Healthy"
    assert scene.pods == {"1": 4, "2": 4, "3": 4}
    return scene


def test_inside_the_rollback_window_a_warm_version_serves_at_once() -> None:
    scene = promoted(rollbackWindow={"revisions": 2})
    scene.deploy("1")
    assert scene.phase == "Healthy"
    assert scene.serves["stable"] == "1"
    assert scene.pods == {"1": 4, "2": 4, "3": 4}
    assert "Rollback to active ReplicaSets within RollbackWindow" in scene.events("SkipSteps")


def test_inside_the_rollback_window_a_cold_version_starts_its_pods_first() -> None:
    scene = promoted(rollbackWindow={"revisions": 2})
    scene.wait(3600)
    assert scene.pods == {"3": 4}
    scene.deploy("2")
    assert scene.phase.startswith("Progressing")
    scene.wait(60)
    assert scene.phase == "Healthy"
    assert scene.serves["stable"] == "2"


def test_outside_the_rollback_window_every_step_runs_again() -> None:
    scene = promoted(rollbackWindow={"revisions": 1})
    scene.deploy("1")
    scene.wait(30)
    assert (scene.phase, scene.step, scene.weight) == ("Paused CanaryPauseStep", 1, 50)


def test_without_a_rollback_window_every_step_runs_again() -> None:
    scene = promoted()
    scene.deploy("2")
    scene.wait(30)
    assert (scene.phase, scene.step, scene.weight) == ("Paused CanaryPauseStep", 1, 50)


def test_the_revision_limit_keeps_the_newest_old_versions_warm() -> None:
    scene = Scene(canary(steps=HALF, scaleDownDelaySeconds=3600, scaleDownDelayRevisionLimit=1))
    for version in ("2", "3"):
        scene.deploy(version)
        scene.wait(30)
        scene.promote_full()
        scene.wait(30)
    assert scene.pods == {"2": 4, "3": 4}


def test_the_revision_history_forgets_the_oldest_without_pods() -> None:
    scene = Scene(canary(steps=[], scaleDownDelaySeconds=1), revisionHistoryLimit=1)
    for version in ("2", "3", "4"):
        scene.deploy(version)
        scene.wait(60)
    assert set(scene.replica_sets) == {"3", "4"}


def test_a_stable_that_gave_up_pods_gets_users_back_as_it_grows() -> None:
    """argo-rollouts#3372: an abort must not send everybody to too few pods."""
    scene = Scene(canary(dynamicStableScale=True, steps=[{"setWeight": 75}, {"pause": {}}]))
    scene.deploy("2")
    scene.wait(30)
    assert (scene.weight, scene.pods) == (75, {"1": 1, "2": 3})
    scene.abort()
    assert scene.weight == 75
    scene.wait(30)
    assert scene.weight == 0
    assert scene.pods == {"1": 4}


def test_going_back_without_abort_is_as_careful_with_a_stable_that_gave_up_pods() -> None:
    """argo-rollouts#3020."""
    scene = Scene(canary(dynamicStableScale=True, steps=[{"setWeight": 75}, {"pause": {}}]))
    scene.deploy("2")
    scene.wait(30)
    scene.deploy("1")
    assert (scene.weight, scene.serves["canary"]) == (75, "2")
    scene.wait(30)
    assert (scene.weight, scene.phase) == (0, "Healthy")


def test_an_abort_without_a_rollout_in_progress_harms_nobody_since_version_1() -> None:
    """argo-rollouts#1292 scaled the stable to 0."""
    scene = Scene()
    scene.abort()
    scene.wait(60)
    assert (scene.pods, scene.weight, scene.phase) == ({"1": 4}, 0, "Healthy")
    assert "abort" not in scene.status
