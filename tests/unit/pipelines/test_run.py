"""Walking a plan: side by side within a wave, and never left in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHALLENGER_URL, CHAMPION, SIDE_BY_SIDE, World, a_spec

from pipelines.model import Ending, PlanStep, StageName
from pipelines.run.engine import run_step
from tidegate.core.errors import OutsideError


@pytest.fixture
def wave(tmp_path: Path) -> World:
    """Two regions that go together."""
    return World(tmp_path, a_spec(**SIDE_BY_SIDE))


def failed(world: World) -> list[tuple[str, str]]:
    return [(event.step, event.message) for event in world.recorder.events if event.kind == "failed"]


async def test_a_step_that_meets_something_outside_is_failed_too(world: World) -> None:
    step = PlanStep(stage=StageName.SMOKE, wave=1, region="eu-west-1")
    with pytest.raises(OutsideError):
        await run_step(world.context(), step)
    assert world.said("started") == ["smoke@eu-west-1"]
    assert world.said("done") == []
    assert [step for step, _ in failed(world)] == ["smoke@eu-west-1"]


async def test_a_stop_keeps_its_ending_on_its_way_up(wave: World) -> None:
    wave.evidence.serves("canary", CHALLENGER, per_second=0.05)
    result = await wave.deliver()
    assert result.ending is Ending.INCONCLUSIVE
    assert result.reason.startswith("canary@")


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
