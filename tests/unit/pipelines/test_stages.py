"""Each stage alone: what it asks, what it does to the region, and how it says no."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes.delivery.world import CHALLENGER, CHALLENGER_URL, CHAMPION, CHAMPION_URL, World, a_spec

from gates.errors import BadAnswer
from pipelines.errors import Stopped
from pipelines.model import Ending, PlanStep, StageName
from pipelines.run.stages import STAGES
from rollouts.errors import Unreachable
from rollouts.model import RegionPhase, RegionState
from tidegate.core.errors import OutsideError
from tidegate.testing import an_engine, answers_500, digest_of

HERE = "eu-west-1"


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """Every region serves the champion; eu-west-1 has the challenger on trial."""
    world = World(tmp_path)
    for fleet in world.fleets.values():
        await fleet.deploy(an_engine(CHAMPION))
    await world.fleets[HERE].deploy(an_engine(CHALLENGER))
    return world


async def run(world: World, stage: StageName, *, weight: int | None = None) -> None:
    region = None if stage in (StageName.BUILD, StageName.BAKE, StageName.FINALIZE) else HERE
    await STAGES[stage](world.context(), PlanStep(stage=stage, wave=1, region=region, weight=weight))


async def stopped(world: World, stage: StageName, *, weight: int | None = None) -> Stopped:
    with pytest.raises(Stopped) as caught:
        await run(world, stage, weight=weight)
    return caught.value


def verdicts(world: World) -> list[tuple[str, str]]:
    said = [event.data for event in world.recorder.events if event.kind == "verdict"]
    return [(data["gate"], data["outcome"]) for data in said]


async def test_smoke_asks_the_canary_alone_three_things(world: World) -> None:
    del world.chat.scripts[CHAMPION_URL]
    await run(world, StageName.SMOKE)
    assert verdicts(world) == [("answers", "pass"), ("tokenizer", "pass"), ("determinism", "pass")]


def answers(*scripts: Any) -> Callable[[World], object]:
    """What the champion's engine, and before it the challenger's, makes of a prompt; None is not reached."""

    def given(world: World) -> None:
        for url, script in zip((CHALLENGER_URL, CHAMPION_URL), scripts, strict=False):
            world.chat.scripts.update({url: script}) if script else world.chat.scripts.pop(url)

    return given


def dies_of_the_prompt(world: World) -> None:
    del world.chat.scripts[CHALLENGER_URL]
    world.chat.on_ask = lambda: world.fleets[HERE].kill(CHALLENGER, last_words="segmentation fault")


def is_dead(world: World) -> None:
    world.fleets[HERE].kill(CHALLENGER, last_words="out of memory")


SMOKE, OFFLINE, SHADOW, BACK = StageName.SMOKE, StageName.OFFLINE, StageName.SHADOW, Ending.ROLLED_BACK
ASKED: list[tuple[StageName, Callable[[World], object], Ending | None, str]] = [
    (SMOKE, answers(lambda prompt: ""), BACK, "gate answers: 0 tokens to a first prompt"),
    (SMOKE, answers(answers_500), BACK, "gate answers: the engine answers 500: CUDA error"),
    (SMOKE, dies_of_the_prompt, BACK, "its log ends with: segmentation fault"),
    (SMOKE, answers(None), None, "is not there"),
    (OFFLINE, answers(*[lambda prompt: "no idea"] * 2), Ending.INCONCLUSIVE, "gate quality: "),
    (OFFLINE, answers(answers_500), BACK, "gate quality: the engine answers 500: CUDA error"),
    (OFFLINE, answers(answers_500, answers_500), None, "500: CUDA error"),
    (OFFLINE, answers(None), None, "is not there"),
    (SHADOW, answers(answers_500), BACK, "gate agreement: "),
    (SHADOW, answers(None), Ending.FAILED, "is not there"),
    (StageName.CANARY, is_dead, BACK, "the canary does not serve; its log ends with: out of memory"),
    (StageName.PROMOTE, is_dead, BACK, "the canary does not serve; its log ends with: out of memory"),
]
"""With how a stage says no; None where the version is not blamed, and the delivery ends as something outside."""


@pytest.mark.parametrize(("stage", "given", "ending", "reason"), ASKED)
async def test_a_version_is_blamed_for_what_the_champion_does_well(
    world: World, stage: StageName, given: Callable[[World], object], ending: Ending | None, reason: str
) -> None:
    given(world)
    with pytest.raises(Stopped if ending else OutsideError) as caught:
        await run(world, stage, weight=10 if stage is StageName.CANARY else None)
    assert reason in str(caught.value)
    if isinstance(caught.value, Stopped):
        assert caught.value.ending is ending
    else:
        assert verdicts(world) == []
    assert world.stable_versions()[HERE] == CHAMPION
    assert max(route.weight for route in world.fleets[HERE].proxy.swaps) == 0


async def test_smoke_blames_no_version_whose_answer_was_cut_off_with_its_whole_region(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone() -> RegionState:
        raise Unreachable("the fleet host has ended, and all that it served with it")

    def cut_off(_: str) -> str:
        monkeypatch.setattr(world.fleets[HERE], "observe", gone)
        raise BadAnswer("the engine broke off its answer")

    world.chat.scripts[CHALLENGER_URL] = cut_off
    with pytest.raises(OutsideError, match="the fleet host has ended"):
        await run(world, StageName.SMOKE)
    assert verdicts(world) == []


async def test_smoke_names_the_token_where_the_engine_and_the_registered_files_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = world.chat.tokenize

    async def without_the_last(url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return (await whole(url, model, messages))[:-1]

    monkeypatch.setattr(world.chat, "tokenize", without_the_last)
    stop = await stopped(world, StageName.SMOKE)
    assert stop.ending is Ending.ROLLED_BACK
    assert stop.reason.endswith(
        "the engine reads a conversation as 12 tokens, its registered files as 13; they part at token 12"
    )


async def test_offline_counts_the_answers_of_both_arms(world: World) -> None:
    await run(world, StageName.OFFLINE)
    counted = [event.data for event in world.recorder.events if event.kind == "evidence"]
    assert [data["done"] for data in counted] == list(range(1, 25))
    assert {data["total"] for data in counted} == {24}
    assert verdicts(world) == [("quality", "pass")]


async def test_shadow_raises_a_bug_of_the_sender_instead_of_waiting_for_pairs(world: World) -> None:
    world.chat.scripts[CHALLENGER_URL] = lambda prompt: str(1 // 0)
    with pytest.raises(ExceptionGroup) as caught:
        await run(world, StageName.SHADOW)
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


async def test_bake_lasts_as_long_as_the_spec_says(world: World) -> None:
    await world.fleets[HERE].promote()
    await run(world, StageName.BAKE)
    assert world.clock.elapsed == 10
    assert {gate for gate, outcome in verdicts(world) if outcome == "pass"} == {"health"}
    # Ten seconds are too short to prove that a region is well; they are long enough to prove that it is not.
    assert verdicts(world)[-1] == ("errors", "running")


async def test_bake_measures_errors_against_a_region_that_still_serves_the_champion(world: World) -> None:
    await world.fleets[HERE].promote()
    world.evidence.serves("stable", CHALLENGER, failed=0.3)
    stop = await stopped(world, StageName.BAKE)
    assert stop.reason.startswith("eu-west-1: gate errors: canary failed 60 of 200")


async def test_bake_of_the_last_wave_has_no_champion_left_to_compare_with(tmp_path: Path) -> None:
    world = World(tmp_path, a_spec(regions="regions: {waves: [[eu-west-1]], bake: 4s}"))
    await world.fleets[HERE].deploy(an_engine(CHALLENGER))
    await run(world, StageName.BAKE)
    assert {gate for gate, _ in verdicts(world)} == {"health"}


async def test_build_starts_the_champion_where_nothing_serves(tmp_path: Path) -> None:
    world = World(tmp_path)
    await run(world, StageName.BUILD)
    assert world.stable_versions() == {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}
    said = [event.message for event in world.recorder.events]
    assert said[0] == f"champion models:/support-llm/1 is here, 0 files proven, digest {digest_of(CHAMPION)[:12]}"
    assert said[-1] == "us-east-1: starting the champion"


async def test_build_leaves_a_region_alone_that_is_as_it_should_be(world: World) -> None:
    before = len(world.fleets["us-east-1"].proxy.swaps)
    await run(world, StageName.BUILD)
    assert len(world.fleets["us-east-1"].proxy.swaps) == before


async def test_build_takes_a_trial_back_that_nobody_finished(world: World) -> None:
    await run(world, StageName.BUILD)
    assert (await world.fleets[HERE].observe()).phase is RegionPhase.STEADY
    assert "eu-west-1: back to version 1 first" in [event.message for event in world.recorder.events]


async def test_finalize_moves_no_alias_while_a_region_serves_something_else(world: World) -> None:
    with pytest.raises(Stopped, match=f"{HERE} serves version {CHAMPION} by now"):
        await run(world, StageName.FINALIZE)
    assert world.registry.champion == CHAMPION
    assert world.registry.marks == {}
