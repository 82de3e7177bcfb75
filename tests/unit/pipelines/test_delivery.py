"""A delivery reaches every region or none; which of the two, why, and how it is told."""

from __future__ import annotations

import asyncio
from itertools import groupby
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHALLENGER_URL, CHAMPION, SIDE_BY_SIDE, World, a_spec

from pipelines.model import Ending, PlanStep, StageName
from pipelines.run.engine import run_step
from registry.model import ServingAliases
from rollouts.model import RegionState
from tidegate.core.errors import ExitCode, OutsideError

EVERYWHERE = {"eu-west-1": CHALLENGER, "us-east-1": CHALLENGER}
NOWHERE = {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}


@pytest.fixture
def wave(tmp_path: Path) -> World:
    """Two regions that go together."""
    return World(tmp_path, a_spec(**SIDE_BY_SIDE))


async def test_a_healthy_version_reaches_every_region_step_by_step_and_becomes_champion(world: World) -> None:
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.DELIVERED, ExitCode.DELIVERED)
    assert world.stable_versions() == EVERYWHERE
    assert world.registry.champion == CHALLENGER
    assert world.registry.marks["tidegate.outcome"] == "delivered"
    assert world.ledger.outcome == "delivered"
    planned = [step.id for step in world.plan.steps]
    assert world.said("started") == ["delivery", *planned]
    assert world.said("done") == planned
    weights = [routes.weight for routes in world.fleets["us-east-1"].proxy.swaps]
    assert [weight for weight, _ in groupby(weights)] == [0, 10, 50, 0]
    names = {name for _, numbers in world.ledger.numbers for name in numbers}
    assert "eu-west-1/quality.canary_mean_score" in names
    assert "us-east-1/latency.ttft_p95_canary_seconds" in names


async def test_wrong_answers_take_it_back_before_any_user_met_it(world: World) -> None:
    world.chat.scripts[CHALLENGER_URL] = lambda prompt: "fast and wrong"
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.ROLLED_BACK, ExitCode.ROLLED_BACK)
    assert "offline@eu-west-1: gate quality: canary scores 0.00 against 1.00" in result.reason
    assert world.stable_versions() == NOWHERE
    assert max(routes.weight for routes in world.fleets["eu-west-1"].proxy.swaps) == 0
    assert "us-east-1" not in "".join(world.said("started"))


async def test_a_slow_version_is_seen_in_shadow_by_the_paired_probe(world: World) -> None:
    world.chat.ttft[CHALLENGER_URL] = 0.3
    result = await world.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert "shadow@eu-west-1: gate latency: canary TTFT is 300 ms against 100 ms on stable" in result.reason


async def test_a_version_that_is_slow_only_under_users_is_seen_in_canary(world: World) -> None:
    world.evidence.serves("canary", CHALLENGER, ttft=0.3)
    result = await world.deliver()
    assert "canary@eu-west-1/10: gate latency" in result.reason
    assert world.stable_versions() == NOWHERE


async def test_too_little_traffic_is_inconclusive_and_never_promotes(world: World) -> None:
    world.evidence.serves("canary", CHALLENGER, per_second=0.05)
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.INCONCLUSIVE, ExitCode.INCONCLUSIVE)
    assert result.reason.startswith("canary@")
    assert world.clock.elapsed >= 300
    assert world.stable_versions() == NOWHERE


async def test_a_mirror_that_never_arrives_cannot_pass(world: World) -> None:
    del world.evidence.loads["shadow", CHALLENGER]
    result = await world.deliver()
    assert result.ending is Ending.INCONCLUSIVE
    assert "no requests of the canary" in result.reason or "0 copies of" in result.reason


async def test_evidence_that_is_gone_for_good_ends_it_with_exit_4(world: World) -> None:
    world.when("canary@eu-west-1/10", "started", lambda: setattr(world.evidence, "gone", True))
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.FAILED, ExitCode.OUTSIDE)
    assert "Prometheus is not there" in result.reason
    assert world.stable_versions() == NOWHERE


async def test_a_canary_that_dies_takes_it_back_with_its_last_words(world: World) -> None:
    world.when("canary@eu-west-1/50", "started", lambda: world.fleets["eu-west-1"].kill(CHALLENGER, last_words="OOM"))
    result = await world.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert "the canary does not serve" in result.reason
    assert "OOM" in result.reason
    assert world.stable_versions() == NOWHERE


@pytest.mark.parametrize("step", ["smoke@eu-west-1", "canary@eu-west-1/10", "canary@eu-west-1/50"])
async def test_a_trial_that_the_region_ended_in_silence_is_no_bad_version(world: World, step: str) -> None:
    """Anyone who carries it hung, and goes on now, be it before an operation or in the middle of a look."""
    region = world.fleets["eu-west-1"]._region
    ending: list[asyncio.Task[RegionState]] = []

    def silent() -> None:
        ending.append(asyncio.create_task(region.end_trial("nothing was heard of ci-7 for 15m")))

    world.when(step, "started", silent)
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.INTERRUPTED, ExitCode.OUTSIDE), result.reason
    assert "version 2 was taken back here at " in result.reason
    assert result.reason.endswith("UTC: nothing was heard of ci-7 for 15m")
    assert world.registry.marks["tidegate.outcome"] == "interrupted"
    assert world.stable_versions() == NOWHERE
    assert ending[0].done()


@pytest.mark.parametrize(("step", "kind"), [("canary@eu-west-1/50", "traffic"), ("bake@1", "started")])
async def test_a_region_that_somebody_takes_back_elsewhere_is_no_bad_version(
    world: World, step: str, kind: str
) -> None:
    going: list[asyncio.Task[RegionState]] = []

    def rollback() -> None:
        going.append(asyncio.create_task(world.fleets["eu-west-1"].rollback(CHAMPION)))

    world.when(step, kind, rollback)
    result = await world.deliver()
    await going[0]
    assert (result.ending, result.exit_code) == (Ending.INTERRUPTED, ExitCode.OUTSIDE), result.reason
    assert world.registry.marks["tidegate.outcome"] == "interrupted"
    assert world.stable_versions() == NOWHERE


async def test_a_promotion_that_breaks_off_leaves_the_champion_that_serves(world: World) -> None:
    world.registry.breaks_off = True
    result = await world.deliver()
    assert result.ending is Ending.FAILED
    assert world.stable_versions() == NOWHERE
    assert world.registry.champion == CHAMPION
    assert world.registry.marks["tidegate.outcome"] == "failed"


async def test_aliases_that_a_delivery_did_not_touch_stay_as_somebody_set_them(world: World) -> None:
    world.when("canary@eu-west-1/50", "started", lambda: setattr(world.registry, "champion", "7"))
    world.fleets["us-east-1"].refuse(CHALLENGER)
    assert (await world.deliver()).ending is Ending.FAILED
    assert world.registry.champion == "7"


async def test_a_bug_is_not_hidden_and_still_takes_every_region_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(world.chat, "tokenize", bug)
    with pytest.raises(ZeroDivisionError):
        await world.deliver()
    assert world.stable_versions() == NOWHERE
    assert world.ledger.outcome == "failed"


async def test_regions_of_one_wave_go_side_by_side(wave: World) -> None:
    assert (await wave.deliver()).ending is Ending.DELIVERED
    started = wave.said("started")
    assert started.index("deploy@us-east-1") < started.index("promote@eu-west-1")
    assert wave.stable_versions() == EVERYWHERE


async def test_a_promoted_region_that_breaks_while_it_bakes_takes_it_back(world: World) -> None:
    world.when("bake@1", "started", lambda: world.fleets["eu-west-1"].kill(CHALLENGER))
    result = await world.deliver()
    assert "bake@1: eu-west-1: gate health" in result.reason
    assert world.stable_versions() == NOWHERE


async def test_an_engine_that_says_something_else_the_second_time_fails_the_smoke(world: World) -> None:
    answers = iter(["one", "one two", "one two three"])
    world.chat.scripts[CHALLENGER_URL] = lambda prompt: next(answers)
    assert "gate determinism" in (await world.deliver()).reason


async def test_a_ledger_that_is_gone_keeps_no_region_on_a_bad_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise OutsideError("the store does not answer")

    world.when("canary@us-east-1/50", "started", lambda: monkeypatch.setattr(world.ledger, "append", lost))
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.FAILED, ExitCode.OUTSIDE)
    assert "the store does not answer" in result.reason
    assert world.stable_versions() == NOWHERE
    told = [event.message for event in world.recorder.events if event.step == "undo@us-east-1"]
    assert "not in the ledger: the store does not answer" in told[-1]


async def test_a_champion_that_is_no_longer_warm_is_started_again_to_go_back_to(world: World) -> None:
    world.when("promote@eu-west-1", "done", lambda: world.fleets["eu-west-1"].kill(CHAMPION))
    world.fleets["us-east-1"].refuse(CHALLENGER)
    await world.deliver()
    assert world.stable_versions() == NOWHERE
    assert world.fleets["eu-west-1"].engines.running() == [CHAMPION]


@pytest.mark.parametrize(("breaks_off", "moves"), [(False, 1), (True, 2)])
async def test_aliases_are_moved_and_moved_back_by_the_names_of_the_spec(
    tmp_path: Path, *, breaks_off: bool, moves: int
) -> None:
    world = World(tmp_path, a_spec(model="model: {name: support-llm, to: live, previous: live-before}"))
    world.registry.breaks_off = breaks_off
    await world.deliver()
    assert world.registry.names == [ServingAliases(champion="live", previous="live-before")] * moves


async def test_a_step_that_meets_something_outside_is_failed_too(world: World) -> None:
    step = PlanStep(stage=StageName.SMOKE, wave=1, region="eu-west-1")
    with pytest.raises(OutsideError):
        await run_step(world.context(), step)
    assert world.said("started") == ["smoke@eu-west-1"]
    assert world.said("done") == []
    assert world.said("failed") == ["smoke@eu-west-1"]


async def test_the_other_region_of_a_wave_does_not_go_on_alone(wave: World) -> None:
    wave.fleets["us-east-1"].refuse(CHALLENGER)
    await wave.deliver()
    assert not [step for step in wave.said("done") if step.startswith(("shadow@", "canary@", "promote@"))]
    assert wave.stable_versions() == {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}


async def test_regions_that_fail_together_are_one_reason(wave: World) -> None:
    for fleet in wave.fleets.values():
        fleet.refuse(CHALLENGER)
    result = await wave.deliver()
    assert result.ending is Ending.FAILED
    assert result.reason.count("died while it started") == 1


async def test_a_version_that_cannot_be_marked_is_taken_back_all_the_same(world: World) -> None:
    world.chat.scripts[CHALLENGER_URL] = lambda prompt: "wrong"
    world.registry.gone = True
    result = await world.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert world.ledger.outcome == "rolled-back"
    said = [event.message for event in world.recorder.events if event.step == "delivery"]
    assert "the version could not be marked: the registry is not there" in said


async def test_what_was_taken_back_is_written_on_the_version(world: World) -> None:
    world.chat.scripts[CHALLENGER_URL] = lambda prompt: "wrong"
    result = await world.deliver()
    assert world.registry.marks == {
        "tidegate.outcome": "rolled-back",
        "tidegate.reason": result.reason,
        "tidegate.delivery": result.delivery,
    }
    assert world.registry.champion == CHAMPION


async def test_a_delivery_that_is_told_to_stop_before_its_first_step_changed_nothing(world: World) -> None:
    task = asyncio.create_task(world.deliver())
    world.when("delivery", "started", task.cancel)
    result = await task
    assert result.ending is Ending.INTERRUPTED
    assert all(fleet.engines.running() in ([], [CHAMPION]) for fleet in world.fleets.values())
    assert max((route.weight for fleet in world.fleets.values() for route in fleet.proxy.swaps), default=0) == 0
