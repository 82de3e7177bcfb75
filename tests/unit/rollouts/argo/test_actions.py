"""What each action makes of a Rollout, with a simulated controller and an API server in memory."""

from __future__ import annotations

import asyncio
import math

import pytest
from fakes.argo.scene import NAME, Scene

from rollouts.argo.actions import ActionResult, RolloutClient
from rollouts.argo.compare_and_set import Precondition
from rollouts.errors import NotConfirmed, NotFound, NotPossible
from rollouts.kube.resources import ROLLOUTS


@pytest.fixture(params=[0.0, math.inf], ids=["hears", "loses"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """With a controller that hears every write, and one that loses each first one after its own, as up to 1.9.1."""
    scene = Scene()
    scene.simulation.loses_writes_within = request.param
    return scene


async def trial(scene: Scene, rollouts: RolloutClient) -> None:
    """Version 2 is warm, and waits without users at the first pause."""
    scene.deploy("2")
    await scene.cluster.time.sleep(30)
    assert (scene.phase, scene.step, scene.weight) == ("Paused CanaryPauseStep", 1, 0)


async def test_two_who_move_it_at_once_move_it_by_one_pause(
    scene: Scene, rollouts: RolloutClient, somebody_else: RolloutClient
) -> None:
    await trial(scene, rollouts)
    ended = await asyncio.gather(rollouts.to_step(NAME, 2), somebody_else.to_step(NAME, 2), return_exceptions=True)
    assert (scene.step, scene.weight) == (3, 5)
    assert [bool(each.sent) for each in ended if isinstance(each, ActionResult)].count(True) == 1


async def test_no_matter_who_thinks_it_is_elsewhere_changes_nothing(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    with pytest.raises(NotPossible, match="it is at step 1, and 3 was meant"):
        await rollouts.to_step(NAME, 4, Precondition(step=3))
    with pytest.raises(NotPossible, match="0a0a was meant"):
        await rollouts.abort(NAME, Precondition(pod_hash="0a0a"))
    assert (scene.step, scene.phase) == (1, "Paused CanaryPauseStep")


async def test_resume_leaves_the_pause_of_a_step(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    scene.cluster.edit(ROLLOUTS, NAME, lambda body: body["spec"].update(paused=True))
    await rollouts.resume(NAME)
    assert (scene.step, scene.phase) == (1, "Paused CanaryPauseStep")
    assert (await rollouts.resume(NAME)).sent == ()


async def test_the_weight_goes_up_and_down_by_its_steps(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.to_step(NAME, 4)
    await scene.cluster.time.sleep(30)
    assert (scene.step, scene.weight) == (6, 50)
    await rollouts.to_step(NAME, 2)
    assert (scene.step, scene.weight) == (3, 5)
    await rollouts.to_step(NAME, 0)
    assert (scene.step, scene.weight) == (1, 0)


async def test_a_pause_at_the_step_that_is_moved_to_holds(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.to_step(NAME, 3)
    await scene.cluster.time.sleep(60)
    assert (scene.step, scene.phase) == (3, "Paused CanaryPauseStep")


async def test_promoted_in_full_it_is_stable_once_its_pods_are_up(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    done = await rollouts.promote_full(NAME)
    assert done.rollout["status"]["currentStepIndex"] == 7
    await scene.cluster.time.sleep(30)
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "2")
    assert (await rollouts.promote_full(NAME)).sent == ()


async def test_abort_brings_all_users_back(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.to_step(NAME, 2)
    done = await rollouts.abort(NAME)
    assert (done.rollout["status"]["phase"], scene.weight) == ("Degraded", 0)
    assert (await rollouts.abort(NAME)).sent == ()


async def test_a_rollout_that_is_not_there(rollouts: RolloutClient) -> None:
    with pytest.raises(NotFound):
        await rollouts.abort("nobody")


async def test_a_controller_that_does_not_react_is_told_with_its_likely_cause(
    scene: Scene, rollouts: RolloutClient
) -> None:
    await trial(scene, rollouts)
    scene.simulation.plugin_broken = True
    with pytest.raises(NotConfirmed, match="traffic plugin argoproj-labs/gatewayAPI does not load or fails") as failed:
        await rollouts.abort(NAME)
    assert failed.value.message == "llm: sent, and nothing came of it in 30 s"


async def test_no_matter_who_moves_it_hears_that_it_was_aborted_meanwhile(
    scene: Scene, rollouts: RolloutClient, somebody_else: RolloutClient
) -> None:
    await trial(scene, rollouts)
    scene.simulation.controller_down = True
    promoting = asyncio.create_task(rollouts.to_step(NAME, 2))
    await scene.cluster.time.sleep(5)
    aborting = asyncio.create_task(somebody_else.abort(NAME))
    await scene.cluster.time.sleep(5)
    scene.simulation.controller_down = False
    with pytest.raises(NotPossible, match="aborted meanwhile"):
        await promoting
    await aborting
    assert scene.weight == 0
