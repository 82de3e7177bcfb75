"""The status as a whole: conditions, counts, and a phase on which the controller and its clients agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.argo.scene import Scene, canary

from rollouts.argo.state import calculated_phase, phase_of
from tidegate.core.model import Json

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
    scene.deploy("1")
    scene.wait(60)


def fail(scene: Scene) -> None:
    scene.simulation.crash("2")
    scene.deploy("2")
    scene.wait(700)
    scene.change(paused=True)
    scene.wait(10)


STRATEGIES = [
    canary(steps=HALF),
    canary(steps=HALF, dynamicStableScale=True),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["routed", "dynamic"])
@pytest.mark.parametrize("story", [forward, back, fail])
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
