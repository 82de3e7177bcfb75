"""A canary from its first deployment to its promotion, as `rollout/canary.go` has it."""

from __future__ import annotations

import pytest
from fakes.argo.scene import Scene, canary

from rollouts.kube.resources import PODS

WAYS: list[tuple[str, dict[str, object]]] = [("routed", {}), ("basic", {"trafficRouting": None})]


def test_the_first_deployment_skips_all_steps() -> None:
    scene = Scene()
    assert scene.phase == "Healthy"
    assert scene.step == 7
    assert scene.weight == 0
    assert scene.pods == {"1": 4}
    assert scene.events("RolloutCompleted")[0].endswith("Initial deploy")


def test_a_canary_is_warm_before_it_gets_users() -> None:
    scene = Scene()
    scene.deploy("2")
    assert scene.phase == "Progressing more replicas need to be updated"
    assert (scene.step, scene.weight, scene.pods) == (0, 0, {"1": 4, "2": 1})
    scene.wait(30)
    assert scene.phase == "Paused CanaryPauseStep"
    assert (scene.step, scene.weight) == (1, 0)


def test_a_pause_without_duration_lasts_until_somebody_ends_it() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(86_400)
    assert (scene.phase, scene.step) == ("Paused CanaryPauseStep", 1)
    scene.resume()
    assert (scene.phase, scene.step, scene.weight) == ("Paused CanaryPauseStep", 3, 5)


def test_a_pause_with_a_duration_ends_by_itself() -> None:
    scene = Scene(canary(steps=[{"setWeight": 25}, {"pause": {"duration": "10m"}}, {"setWeight": 50}, {"pause": {}}]))
    scene.deploy("2")
    scene.wait(20)
    assert (scene.step, scene.weight) == (1, 25)
    scene.wait(599)
    assert scene.step == 1
    scene.wait(1)
    assert scene.step == 2
    scene.wait(20)
    assert (scene.step, scene.weight) == (3, 50)


def test_weight_waits_for_the_pods_that_it_needs() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(30)
    scene.resume()
    scene.resume()
    assert (scene.step, scene.weight, scene.pods) == (5, 5, {"1": 4, "2": 2})
    scene.wait(30)
    assert (scene.step, scene.weight, scene.pods) == (6, 50, {"1": 4, "2": 2})


def test_after_the_last_step_the_canary_becomes_stable_and_the_old_stable_stays_warm() -> None:
    scene = Scene(canary(scaleDownDelaySeconds=3600))
    scene.deploy("2")
    scene.wait(30)
    for _ in range(3):
        scene.resume()
        scene.wait(30)
    assert scene.phase == "Healthy"
    assert (scene.step, scene.weight) == (7, 0)
    assert scene.serves == {"stable": "2", "canary": "2"}
    assert scene.pods == {"1": 4, "2": 4}
    scene.wait(3600)
    assert scene.pods == {"2": 4}


def test_a_full_promotion_skips_steps_but_not_readiness() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(30)
    scene.promote_full()
    assert scene.phase.startswith("Progressing")
    assert scene.weight == 0
    scene.wait(30)
    assert scene.phase == "Healthy"
    assert "promoteFull" not in scene.status
    assert scene.serves == {"stable": "2", "canary": "2"}


def test_skipping_a_step_moves_the_index() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(30)
    scene.say(pauseConditions=None, controllerPause=False, currentStepIndex=5)
    scene.wait(30)
    assert (scene.step, scene.weight) == (6, 50)


def test_going_back_a_step_takes_users_away() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(30)
    scene.say(pauseConditions=None, controllerPause=False, currentStepIndex=5)
    scene.wait(30)
    scene.say(pauseConditions=None, controllerPause=False, currentStepIndex=2)
    scene.wait(30)
    assert (scene.step, scene.weight) == (3, 5)


def test_a_canary_without_pods_never_gets_users() -> None:
    scene = Scene()
    scene.simulation.crash("2")
    scene.deploy("2")
    scene.say(currentStepIndex=5)
    scene.wait(60)
    assert scene.weight == 0


def test_spec_paused_stops_everything_and_nothing_is_lost() -> None:
    scene = Scene(canary(steps=[{"setWeight": 50}, {"pause": {"duration": "60s"}}]))
    scene.change(paused=True)
    scene.deploy("2")
    scene.wait(3600)
    assert scene.phase == "Paused manually paused"
    assert scene.pods == {"1": 4}
    scene.change(paused=False)
    scene.wait(120)
    assert scene.phase == "Healthy"


def test_a_version_that_another_overtakes_is_scaled_down() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(30)
    scene.deploy("3")
    scene.wait(30)
    assert scene.pods == {"1": 4, "3": 1}
    assert scene.step == 1


def test_replicas_follow_a_scaling_event_while_a_step_pauses() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(30)
    scene.change(replicas=6)
    scene.wait(30)
    assert scene.pods == {"1": 6, "2": 1}
    assert scene.phase == "Paused CanaryPauseStep"


def test_the_basic_canary_shifts_by_counting_pods() -> None:
    scene = Scene(canary(trafficRouting=None, maxSurge=1, maxUnavailable=0, steps=[{"setWeight": 25}, {"pause": {}}]))
    scene.deploy("2")
    scene.wait(60)
    assert scene.pods == {"1": 3, "2": 1}
    scene.resume()
    scene.wait(200)
    assert scene.phase == "Healthy"
    assert scene.pods == {"2": 4}


def test_a_stable_that_follows_its_weight_gives_up_pods() -> None:
    scene = Scene(canary(dynamicStableScale=True, steps=[{"setWeight": 50}, {"pause": {}}]))
    scene.deploy("2")
    scene.wait(30)
    assert (scene.weight, scene.pods) == (50, {"1": 2, "2": 2})


def test_a_threshold_lets_a_step_go_on_with_part_of_its_pods() -> None:
    threshold = {"type": "Percent", "value": 50}
    scene = Scene(canary(replicaProgressThreshold=threshold, steps=[{"setWeight": 100}, {"pause": {}}]), ready=False)
    scene.add_node("gpu-1", pods="6")
    scene.wait(30)
    scene.deploy("2")
    scene.wait(30)
    assert scene.replica_sets["2"]["status"]["availableReplicas"] == 2
    assert (scene.step, scene.weight) == (1, 100)


@pytest.mark.parametrize(("name", "fields"), WAYS)
def test_a_restart_takes_every_pod_a_few_at_a_time(name: str, fields: dict[str, object]) -> None:
    scene = Scene(canary(**(fields | ({"steps": []} if name == "basic" else {}))))
    scene.wait(60)
    before = {pod["metadata"]["name"] for pod in scene.cluster.list(PODS)}
    scene.change(restartAt="2026-01-01T00:01:00Z")
    assert scene.phase == "Progressing rollout is restarting"
    assert len(before & {pod["metadata"]["name"] for pod in scene.cluster.list(PODS)}) == 3
    scene.wait(300)
    assert before & {pod["metadata"]["name"] for pod in scene.cluster.list(PODS)} == set()
    assert scene.phase == "Healthy"
    assert scene.status["restartedAt"] == "2026-01-01T00:01:00Z"
