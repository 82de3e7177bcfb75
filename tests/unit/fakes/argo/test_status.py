"""The status as a whole: conditions, counts, and a phase on which the controller and its clients agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.argo.conditions import Condition, condition_of, set_condition
from fakes.argo.objects import safe_hash
from fakes.argo.scene import NAME, Scene, blue_green, canary
from fakes.kube.simulated_time import START

from rollouts.argo.phase import calculated_phase, phase_of
from rollouts.kube.model import Json
from rollouts.kube.resources import DEPLOYMENTS, ROLLOUTS

HALF: list[Json] = [{"setWeight": 50}, {"pause": {}}]


def forward(scene: Scene) -> None:
    scene.deploy("2")
    scene.wait(30)
    scene.resume()
    scene.wait(60)


def back(scene: Scene) -> None:
    scene.deploy("2")
    scene.wait(30)
    scene.abort()
    scene.wait(60)
    scene.retry()
    scene.wait(30)
    scene.deploy("1")
    scene.wait(60)


def fail(scene: Scene) -> None:
    scene.simulation.crash("2")
    scene.deploy("2")
    scene.wait(700)
    scene.change(paused=True)
    scene.wait(10)


def restart(scene: Scene) -> None:
    scene.wait(60)
    scene.change(restartAt="2026-01-01T00:01:00Z", replicas=3)
    scene.wait(300)


STRATEGIES = [
    canary(steps=HALF),
    canary(steps=HALF, trafficRouting=None),
    canary(steps=HALF, dynamicStableScale=True),
    blue_green(autoPromotionEnabled=False),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["routed", "basic", "dynamic", "blue-green"])
@pytest.mark.parametrize("story", [forward, back, fail, restart])
def test_the_phase_is_what_clients_calculate_in_every_state_on_the_way(
    strategy: Json, story: Callable[[Scene], None]
) -> None:
    scene, states = Scene(strategy, ready=False), list[Json]()
    scene.cluster.on_change(lambda event: states.append(event.after) if event.kind.plural == "rollouts" else None)
    story(scene)
    observed = [body for body in states if body.get("status", {}).get("phase")]
    assert len(observed) >= 4
    for body in observed:
        said = calculated_phase(body)
        if body["status"]["observedGeneration"] == str(body["metadata"]["generation"]) and _by_the_controller(body):
            assert (said.phase, said.message) == (body["status"]["phase"], body["status"].get("message", ""))
    assert phase_of(scene.rollout).phase == scene.status["phase"]


def _by_the_controller(body: Json) -> bool:
    """Not changed by a client since: an action's patch leaves the phase as it was."""
    manager = max(body["metadata"].get("managedFields", [{}]), key=lambda one: one.get("time", ""), default={})
    return bool(manager.get("manager", "rollouts-controller") == "rollouts-controller")


def test_a_healthy_rollout_says_so_in_every_condition() -> None:
    scene = Scene()
    assert {one["type"]: (one["status"], one["reason"]) for one in scene.status["conditions"]} == {
        "Available": ("True", "AvailableReason"),
        "Completed": ("True", "RolloutCompleted"),
        "Healthy": ("True", "RolloutHealthy"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }


def test_a_paused_rollout_does_not_run_late() -> None:
    scene = Scene()
    scene.deploy("2")
    scene.wait(30)
    assert scene.condition("Paused") == ("True", "RolloutPaused")
    assert scene.condition("Progressing") == ("Unknown", "RolloutPaused")
    scene.wait(86_400)
    assert scene.phase == "Paused CanaryPauseStep"


def test_a_retry_is_told_before_progress_is() -> None:
    scene = Scene(canary(steps=HALF))
    scene.deploy("2")
    scene.wait(30)
    scene.abort()
    assert scene.condition("Progressing") == ("False", "RolloutAborted")
    scene.retry()
    assert scene.condition("Progressing")[1] in ("RolloutRetry", "ReplicaSetUpdated", "RolloutPaused")


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    status: Json = {}
    assert set_condition(status, START, Condition("Progressing", "True", "A", "a"))
    assert not set_condition(status, START, Condition("Progressing", "True", "A", "other words"))
    assert condition_of(status, "Progressing")["message"] == "a"  # type: ignore[index]


def test_counts_are_of_pods_that_exist() -> None:
    scene = Scene(canary(steps=HALF))
    scene.deploy("2")
    scene.wait(30)
    counts = {key: scene.status[key] for key in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")}
    assert counts == {"replicas": 6, "updatedReplicas": 2, "readyReplicas": 6, "availableReplicas": 6}


def test_a_hash_looks_like_one_of_kubernetes() -> None:
    assert set(safe_hash({"any": "thing"})) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert safe_hash({"a": 1, "b": 2}) == safe_hash({"b": 2, "a": 1})


def test_a_template_may_come_from_a_deployment() -> None:
    scene = Scene(ready=False)
    body = scene.cluster.get(ROLLOUTS, NAME)
    scene.cluster.delete(ROLLOUTS, NAME)
    spec = {"replicas": 0, "selector": body["spec"]["selector"], "template": body["spec"]["template"]}
    scene.cluster.create(
        DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}, "spec": spec}
    )
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
    own = {key: part for key, part in body["spec"].items() if key not in ("template", "selector")}
    metadata = {"name": NAME, "namespace": "default"}
    scene.cluster.create(
        ROLLOUTS, {**body, "metadata": metadata, "spec": own | {"workloadRef": reference}, "status": {}}
    )
    scene.wait(30)
    assert scene.phase == "Healthy"
    assert scene.pods == {"1": 4}
    assert "template" not in scene.rollout["spec"]
    assert scene.rollout["metadata"]["annotations"]["rollout.argoproj.io/workload-generation"] == "1"
