"""What an Argo Rollouts controller does to a Rollout of tidegate's, as far as deliveries rely on it.

Inherit the class and bring the fixture `stage`: a `Stage` whose version 1 was just applied. The controller in memory
and the one beside a real API server keep it; a real one should.
"""

from __future__ import annotations

from fakes.argo.stage import AT_5, AT_50, DEPLOYED, ENGINES, PAST_ALL, Seen, Stage

from rollouts.kube.resources import ROLLOUTS

_REST_SECONDS = 1.0
"""Long enough for a controller that lives to have reacted."""


class ControllerContract:
    async def test_a_first_version_takes_no_steps(self, stage: Stage) -> None:
        seen = await stage.is_healthy_with("1")
        assert (seen.step, seen.canary, seen.ready("1")) == (PAST_ALL, "1", ENGINES)

    async def test_a_trial_waits_for_engines_first_and_then_at_each_weight(self, stage: Stage) -> None:
        before = await stage.is_healthy_with("1")
        await stage.deploy("2")
        seen = await stage.waits_at(DEPLOYED, weight=0)
        assert (seen.stable, seen.canary, seen.ready("2")) == ("1", "2", 1)
        assert seen.roles["2"] == {"canary"}
        await stage.acts.promote(stage.name)
        await stage.waits_at(AT_5, weight=5)
        await stage.acts.promote(stage.name)
        seen = await stage.waits_at(AT_50, weight=50)
        assert seen.pods["1"] == before.pods["1"]

    async def test_an_abort_gives_all_users_back_and_a_retry_begins_anew(self, stage: Stage) -> None:
        await self._at_5(stage)
        await stage.acts.abort(stage.name)
        seen = await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")
        assert (seen.stable, seen.canary, seen.step) == ("1", "1", 0)
        assert seen.message.startswith("RolloutAborted") and seen.ready("1") == ENGINES
        await stage.acts.retry(stage.name)
        seen = await stage.waits_at(DEPLOYED, weight=0)
        assert (seen.stable, seen.canary) == ("1", "2")

    async def test_what_was_promoted_is_the_stable_and_the_one_before_stays_warm(self, stage: Stage) -> None:
        before = await self._at_5(stage)
        await stage.acts.promote_full(stage.name)
        seen = await stage.is_healthy_with("2")
        assert (seen.step, seen.canary, seen.ready("2")) == (PAST_ALL, "2", ENGINES)
        assert seen.pods["1"] == before.pods["1"] and "stable" not in seen.roles["1"]

    async def test_going_back_to_a_warm_version_starts_nothing(self, stage: Stage) -> None:
        before = await self._at_5(stage)
        await stage.acts.promote_full(stage.name)
        promoted = await stage.is_healthy_with("2")
        await stage.acts.undo(stage.name)
        seen = await stage.is_healthy_with("1")
        assert (seen.pods["1"], seen.pods["2"]) == (before.pods["1"], promoted.pods["2"])

    async def test_what_was_said_while_the_controller_was_dead_is_done_when_it_lives(self, stage: Stage) -> None:
        before = await self._at_5(stage)
        await stage.controller.kill()
        await _say_abort(stage)
        seen = await stage.after(_REST_SECONDS)
        assert (seen.weight, seen.stable, seen.pods["1"]) == (5, "1", before.pods["1"])
        await stage.controller.start()
        seen = await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")
        assert (seen.pods["1"], seen.ready("2")) == (before.pods["1"], 1)

    async def test_a_plugin_that_does_not_start_leaves_weight_and_status_as_they_are(self, stage: Stage) -> None:
        await self._at_5(stage)
        await stage.controller.break_plugin(True)
        await _say_abort(stage)
        seen = await stage.after(_REST_SECONDS)
        assert (seen.weight, seen.phase) == (5, "Paused")
        await stage.controller.break_plugin(False)
        await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")

    async def test_a_failed_analysis_takes_the_trial_back(self, stage: Stage) -> None:
        await self._at_5(stage)
        await stage.controller.end_analyses("Failed")
        seen = await stage.until(lambda seen: seen.phase == "Degraded" and seen.weight == 0, "taken back")
        assert (seen.stable, seen.canary) == ("1", "1")

    async def _at_5(self, stage: Stage) -> Seen:
        await stage.is_healthy_with("1")
        await stage.deploy("2")
        await stage.waits_at(DEPLOYED, weight=0)
        await stage.acts.promote(stage.name)
        return await stage.waits_at(AT_5, weight=5)


async def _say_abort(stage: Stage) -> None:
    """As `kubectl argo rollouts abort`, which does not wait."""
    await stage.client.patch(ROLLOUTS, stage.name, {"status": {"abort": True}}, subresource="status")
