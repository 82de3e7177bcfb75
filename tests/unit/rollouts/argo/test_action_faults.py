"""Every action ends as it was meant, and is done once, whatever happens on the way to the API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from fakes.argo.scene import NAME, Scene
from fakes.kube.api import Api
from fakes.kube.refusal import Refusal
from fakes.kube.requests import WRITES, Fault, LoseAnswer, LoseRequest, Meanwhile, Refuse

from rollouts.argo.actions import RolloutClient
from rollouts.errors import Forbidden, Unreachable
from rollouts.kube.resources import ROLLOUTS

FAULTS: dict[str, Callable[[Api, Scene], None]] = {
    "conflict on every write": lambda api, scene: api.faults.conflict_on_every_write(),
    "somebody writes in between": lambda api, scene: api.faults.add(
        Fault(Meanwhile(lambda call: _annotate(scene)), verbs=WRITES, plural="rollouts")
    ),
    "request lost": lambda api, scene: api.faults.add(Fault(LoseRequest(), verbs=WRITES)),
    "answer lost": lambda api, scene: api.faults.add(Fault(LoseAnswer(), verbs=WRITES)),
    "three answers lost": lambda api, scene: api.faults.add(Fault(LoseAnswer(), times=3)),
    "busy": lambda api, scene: api.faults.busy(retry_after=2),
    "failing": lambda api, scene: api.faults.failing(code=503, times=2),
    "failing to write": lambda api, scene: api.faults.failing(code=500, verbs=WRITES, times=2),
}


def _annotate(scene: Scene) -> None:
    scene.cluster.patch(ROLLOUTS, NAME, {"metadata": {"annotations": {"somebody": "was here"}}})


async def _later(scene: Scene) -> tuple[int, int, str, str]:
    await scene.cluster.time.sleep(60)
    tag = scene.rollout["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[2]
    return scene.step, scene.weight, scene.status["phase"], tag


ACTIONS: dict[str, tuple[Callable[[RolloutClient], Awaitable[object]], tuple[int, int, str, str]]] = {
    "promote in full": (lambda rollouts: rollouts.promote_full(NAME), (7, 0, "Healthy", "2")),
    "to step": (lambda rollouts: rollouts.to_step(NAME, 5), (6, 50, "Paused", "2")),
    "abort": (lambda rollouts: rollouts.abort(NAME), (0, 0, "Degraded", "2")),
    "resume": (lambda rollouts: rollouts.resume(NAME), (1, 0, "Paused", "2")),
}
"""And where each ends: step, weight, phase, image."""


@pytest.mark.parametrize(("action", "fault"), [*zip([*ACTIONS, *ACTIONS], FAULTS, strict=True)])
async def test_the_end_is_right(action: str, fault: str, scene: Scene, api: Api, rollouts: RolloutClient) -> None:
    scene.deploy("2")
    scene.wait(30)
    if action == "resume":
        scene.cluster.edit(ROLLOUTS, NAME, lambda body: body["spec"].update(paused=True))
    FAULTS[fault](api, scene)
    act, end = ACTIONS[action]
    await act(rollouts)
    assert await _later(scene) == end


async def test_a_region_that_is_gone_is_told(scene: Scene, api: Api, rollouts: RolloutClient) -> None:
    scene.deploy("2")
    scene.wait(30)
    api.vanish()
    with pytest.raises(Unreachable):
        await rollouts.abort(NAME)
    api.come_back()
    await rollouts.abort(NAME)
    assert scene.weight == 0


async def test_what_is_forbidden_is_not_repeated(scene: Scene, api: Api, rollouts: RolloutClient) -> None:
    scene.deploy("2")
    scene.wait(30)
    before = scene.rollout["metadata"]["resourceVersion"]
    refusal = Refusal(403, "Forbidden", "rollouts.argoproj.io is forbidden")
    api.faults.add(Fault(Refuse(refusal), verbs=WRITES, times=None))
    with pytest.raises(Forbidden):
        await rollouts.abort(NAME)
    assert scene.rollout["metadata"]["resourceVersion"] == before
