"""A delivery whose process died goes on: what stands is not done again, what is lost is, a verdict stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, Steps, World, a_spec, right

from pipelines.model import Ending
from tidegate.testing import FakeFleet

EVERYWHERE = {"eu-west-1": CHALLENGER, "us-east-1": CHALLENGER}
AT_OTHER_ADDRESSES = {f"http://127.0.0.1:{port}": right for port in (8003, 8004)}
"""Engines that are started again."""
NOWHERE = {"eu-west-1": CHAMPION, "us-east-1": CHAMPION}


class KilledError(BaseException):
    """As by the kernel: nothing more is said."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Of two waves without shadow."""
    return World(tmp_path, a_spec(shadow=""))


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    world.chat.scripts |= AT_OTHER_ADDRESSES
    return Steps(world, tmp_path)


async def died_in(steps: Steps, step: str) -> None:
    def die() -> None:
        raise KilledError

    await steps.until(steps.ids[steps.ids.index(step) - 1])
    steps.world.when(step, "started", die)
    with pytest.raises(KilledError):
        await steps.take(step)


def starts(world: World) -> dict[str, int]:
    said = world.said("started")
    return {step: said.count(step) for step in said if step != "delivery"}


async def test_finished_steps_are_not_repeated_and_the_half_done_one_is_repeated(steps: Steps, world: World) -> None:
    await died_in(steps, "canary@us-east-1/50")
    result = await steps.resume()
    assert result.ending is Ending.DELIVERED, result.reason
    assert world.stable_versions() == EVERYWHERE
    assert starts(world) == {step: 2 if step == "canary@us-east-1/50" else 1 for step in steps.ids}


async def test_a_region_that_was_promoted_before_its_process_could_say_so_is_not_begun_again(
    steps: Steps, world: World
) -> None:
    await died_in(steps, "promote@us-east-1")
    await world.fleets["us-east-1"].promote()
    result = await steps.resume()
    assert result.ending is Ending.DELIVERED, result.reason
    assert [step for step, times in starts(world).items() if times == 2] == ["promote@us-east-1"]
    assert world.said("undone") == []


@pytest.mark.long
async def test_a_region_that_went_back_meanwhile_is_begun_again_and_what_was_shown_stays(
    steps: Steps, world: World
) -> None:
    await died_in(steps, "canary@us-east-1/50")
    await world.fleets["us-east-1"].rollback(CHAMPION)
    result = await steps.resume()
    assert result.ending is Ending.DELIVERED, result.reason
    again = [step for step, times in starts(world).items() if times == 2]
    assert again == ["deploy@us-east-1", "smoke@us-east-1", "canary@us-east-1/10", "canary@us-east-1/50"]
    assert world.said("undone") == ["deploy@us-east-1", "smoke@us-east-1", "canary@us-east-1/10"]


async def test_a_promoted_region_that_went_back_is_promoted_and_baked_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.chat.scripts |= AT_OTHER_ADDRESSES
    steps = Steps(world, tmp_path)
    await died_in(steps, "deploy@us-east-1")
    await world.fleets["eu-west-1"].rollback(CHAMPION)
    result = await steps.resume()
    assert result.ending is Ending.DELIVERED, result.reason
    assert world.stable_versions() == EVERYWHERE
    assert "bake@1" in world.said("undone")
    assert "shadow@eu-west-1" not in world.said("undone")


async def test_a_fleet_that_is_new_serves_the_champion_first(steps: Steps, world: World) -> None:
    await died_in(steps, "canary@us-east-1/10")
    world.fleets.update({name: FakeFleet(name, clock=world.clock) for name in world.fleets})
    result = await steps.resume()
    assert result.ending is Ending.DELIVERED, result.reason
    assert world.said("undone")[:2] == ["build", "deploy@eu-west-1"]
    assert world.stable_versions() == EVERYWHERE


async def test_a_verdict_that_was_given_stands(steps: Steps, world: World) -> None:
    world.evidence.serves("canary", CHALLENGER, failed=0.2)
    await steps.until("finalize")
    world.evidence.serves("canary", CHALLENGER)
    result = await steps.resume()
    assert result.ending is Ending.ROLLED_BACK
    assert result.reason.startswith("canary@eu-west-1/10: gate errors")
    assert world.stable_versions() == NOWHERE


async def test_what_was_missing_is_tried_again(steps: Steps, world: World) -> None:
    await steps.until("bake@2")
    world.registry.gone = True
    assert (await steps.resume()).ending is Ending.FAILED
    assert world.stable_versions() == NOWHERE
