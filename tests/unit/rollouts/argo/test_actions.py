"""What each action makes of a Rollout, with a simulated controller and an API server in memory."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta

import pytest
from fakes.argo.scene import NAME, Scene, blue_green

from rollouts.argo.actions import ActionResult, RolloutClient
from rollouts.argo.compare_and_set import Precondition
from rollouts.errors import NotConfirmed, NotFound, NotPossible
from rollouts.kube.resources import ROLLOUTS


def image(version: str) -> str:
    return f"registry.example/engine:{version}"


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


async def test_a_new_image_starts_a_trial(scene: Scene, rollouts: RolloutClient) -> None:
    done = await rollouts.set_image(NAME, "engine", image("2"))
    assert [(sent.method, sent.subresource) for sent in done.sent] == [("PUT", "")]
    assert (done.rollout["status"]["currentStepIndex"], scene.phase) == (
        0,
        "Progressing more replicas need to be updated",
    )


async def test_an_image_that_is_there_is_not_sent_again(rollouts: RolloutClient) -> None:
    assert (await rollouts.set_image(NAME, "engine", image("1"))).sent == ()


async def test_promote_goes_on_to_the_next_pause(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    done = await rollouts.promote(NAME)
    assert (done.rollout["status"]["currentStepIndex"], scene.weight) == (3, 5)


async def test_promote_is_refused_when_nothing_is_in_progress(rollouts: RolloutClient) -> None:
    with pytest.raises(NotPossible, match="nothing is in progress"):
        await rollouts.promote(NAME)


async def test_promote_does_not_skip_what_runs(scene: Scene, rollouts: RolloutClient) -> None:
    scene.deploy("2")
    with pytest.raises(NotPossible, match="would skip what runs at step 0 of 7"):
        await rollouts.promote(NAME)


async def test_two_who_promote_at_once_move_it_by_one_pause(
    scene: Scene, rollouts: RolloutClient, somebody_else: RolloutClient
) -> None:
    await trial(scene, rollouts)
    ended = await asyncio.gather(rollouts.promote(NAME), somebody_else.promote(NAME), return_exceptions=True)
    assert (scene.step, scene.weight) == (3, 5)
    assert [bool(each.sent) for each in ended if isinstance(each, ActionResult)].count(True) == 1


async def test_no_matter_who_thinks_it_is_elsewhere_changes_nothing(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    with pytest.raises(NotPossible, match="it is at step 1, and 3 was meant"):
        await rollouts.promote(NAME, Precondition(step=3))
    with pytest.raises(NotPossible, match="0a0a was meant"):
        await rollouts.abort(NAME, Precondition(pod_hash="0a0a"))
    assert (scene.step, scene.phase) == (1, "Paused CanaryPauseStep")


async def test_promote_lets_go_what_a_hand_holds_without_losing_a_step(scene: Scene, rollouts: RolloutClient) -> None:
    scene.deploy("2")
    await rollouts.pause(NAME)
    assert scene.phase == "Paused manually paused"
    await rollouts.promote(NAME)
    assert scene.step == 0
    await scene.cluster.time.sleep(30)
    assert (scene.step, scene.weight) == (1, 0)


async def test_promote_ends_a_hand_s_pause_and_the_step_s(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.pause(NAME)
    done = await rollouts.promote(NAME)
    assert [sent.subresource for sent in done.sent] == ["", "status"]
    assert (scene.step, scene.phase) == (3, "Paused CanaryPauseStep")


async def test_resume_leaves_the_pause_of_a_step(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.pause(NAME)
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


async def test_a_pause_is_skipped_like_any_step(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.skip_step(NAME)
    assert (scene.step, scene.weight) == (3, 5)


async def test_promoted_in_full_it_is_stable_once_its_pods_are_up(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    done = await rollouts.promote_full(NAME)
    assert done.rollout["status"]["currentStepIndex"] == 7
    await scene.cluster.time.sleep(30)
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "2")
    assert (await rollouts.promote_full(NAME)).sent == ()


async def test_abort_brings_all_users_back(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.promote(NAME)
    done = await rollouts.abort(NAME)
    assert (done.rollout["status"]["phase"], scene.weight) == ("Degraded", 0)
    assert (await rollouts.abort(NAME)).sent == ()


async def test_abort_is_refused_when_nothing_is_in_progress(scene: Scene, rollouts: RolloutClient) -> None:
    with pytest.raises(NotPossible, match="nothing is in progress"):
        await rollouts.abort(NAME)
    assert scene.phase == "Healthy"


async def test_the_first_version_cannot_be_aborted(scene: Scene, rollouts: RolloutClient) -> None:
    scene.cluster.edit(ROLLOUTS, NAME, lambda body: body["status"].pop("stableRS"), subresource="status")
    with pytest.raises(NotPossible, match="never promoted"):
        await rollouts.abort(NAME)


async def test_retry_starts_the_aborted_version_at_its_first_step(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    with pytest.raises(NotPossible, match="was not aborted"):
        await rollouts.retry(NAME)
    await rollouts.promote(NAME)
    await rollouts.abort(NAME)
    await rollouts.retry(NAME)
    await scene.cluster.time.sleep(30)
    assert (scene.phase, scene.step, scene.weight) == ("Paused CanaryPauseStep", 1, 0)


async def test_an_aborted_version_is_not_promoted(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.abort(NAME)
    for action in (rollouts.promote, rollouts.promote_full, rollouts.skip_step):
        with pytest.raises(NotPossible, match="was aborted"):
            await action(NAME)


async def test_undo_ends_a_trial_with_the_stable_template(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.abort(NAME)
    scene.deploy("3")
    await scene.cluster.time.sleep(30)
    # kubectl would go to version 2, the second-highest revision, which was aborted
    await rollouts.undo(NAME)
    await scene.cluster.time.sleep(30)
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "1")


async def test_undo_goes_to_any_revision(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    await rollouts.undo(NAME, 1)
    await scene.cluster.time.sleep(30)
    assert (scene.phase, scene.serves["stable"]) == ("Healthy", "1")
    with pytest.raises(NotPossible, match="unable to find specified revision 9"):
        await rollouts.undo(NAME, 9)


async def test_restart_replaces_the_pods(scene: Scene, rollouts: RolloutClient) -> None:
    scene.wait(60)
    await rollouts.restart(NAME, scene.cluster.time.now() + timedelta(seconds=5))
    await scene.cluster.time.sleep(300)
    assert scene.phase == "Healthy"
    assert scene.status["restartedAt"] == scene.rollout["spec"]["restartAt"]


class TestBlueGreen:
    @pytest.fixture
    def scene(self) -> Scene:
        return Scene(blue_green(autoPromotionEnabled=False))

    async def test_it_is_promoted_out_of_its_pause(self, scene: Scene, rollouts: RolloutClient) -> None:
        scene.deploy("2")
        await scene.cluster.time.sleep(30)
        assert scene.phase == "Paused BlueGreenPause"
        await rollouts.promote(NAME)
        await scene.cluster.time.sleep(60)
        assert (scene.phase, scene.serves["stable"]) == ("Healthy", "2")

    async def test_it_has_no_steps(self, scene: Scene, rollouts: RolloutClient) -> None:
        scene.deploy("2")
        with pytest.raises(NotPossible, match="cannot skip steps of a blue-green rollout"):
            await rollouts.skip_step(NAME)


async def test_skip_step__moves_from_the_step_it_was_meant_for_alone(scene: Scene, rollouts: RolloutClient) -> None:
    await trial(scene, rollouts)
    found = Precondition.of(scene.rollout)
    await rollouts.skip_step(NAME, Precondition(pod_hash=found.pod_hash))
    with pytest.raises(NotPossible, match="moved on"):
        await rollouts.skip_step(NAME, found)
    await rollouts.to_step(NAME, 7)
    with pytest.raises(NotPossible, match="past its last step"):
        await rollouts.skip_step(NAME)


async def test_a_rollout_that_is_not_there(rollouts: RolloutClient) -> None:
    with pytest.raises(NotFound):
        await rollouts.promote("nobody")


async def test_a_controller_that_does_not_react_is_told_with_its_likely_cause(
    scene: Scene, rollouts: RolloutClient
) -> None:
    await trial(scene, rollouts)
    scene.simulation.plugin_broken = True
    with pytest.raises(NotConfirmed, match="traffic plugin argoproj-labs/gatewayAPI does not load or fails") as failed:
        await rollouts.abort(NAME)
    assert failed.value.message == "llm: sent, and nothing came of it in 30 s"


async def test_no_matter_who_promotes_hears_that_it_was_aborted_meanwhile(
    scene: Scene, rollouts: RolloutClient, somebody_else: RolloutClient
) -> None:
    await trial(scene, rollouts)
    scene.simulation.controller_down = True
    promoting = asyncio.create_task(rollouts.promote(NAME))
    await scene.cluster.time.sleep(5)
    aborting = asyncio.create_task(somebody_else.abort(NAME))
    await scene.cluster.time.sleep(5)
    scene.simulation.controller_down = False
    with pytest.raises(NotPossible, match="aborted meanwhile"):
        await promoting
    await aborting
    assert scene.weight == 0
