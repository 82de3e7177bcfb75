"""What a process finds that carries a delivery on, or a person who rolls it back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHAMPION, Steps, World, a_spec, right

from pipelines.model import Ending
from pipelines.run.rollback_target import before, before_by_others, cold, in_words, is_back, previous_of
from registry.model import DeliverySummary
from rollouts.model import EngineSet, RegionPhase, RegionState, Role
from tidegate.core.errors import UsageError
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


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def an_arm(role: Role, version: str) -> EngineSet:
    return EngineSet(role=role, version=version, digest="d", url="http://127.0.0.1:1", ready=True)


def a_region(name: str, stable: str = "", previous: str = "", *, canary: str = "", warm: str = "") -> RegionState:
    return RegionState(
        region=name,
        phase=RegionPhase.STEADY,
        entry="http://127.0.0.1:8080",
        stable=an_arm(Role.STABLE, stable) if stable else None,
        previous=an_arm(Role.PREVIOUS, previous) if previous else None,
        canary=an_arm(Role.CANARY, canary) if canary else None,
        warm=tuple(warm or previous),
    )


def regions(*states: RegionState) -> dict[str, RegionState]:
    return {state.region: state for state in states}


def a_delivery(outcome: str | None, *, champion: str | None = "1") -> DeliverySummary:
    known = {"id": "d", "name": "m", "version": "2", "started": NOON, "host": "ci", "pid": 1, "heartbeat": NOON}
    return DeliverySummary.model_validate(known | {"outcome": outcome, "champion": champion})


PROMOTED_IN_ONE = regions(a_region("eu", "2", "1"), a_region("us", "1", "0"))


@pytest.mark.parametrize("outcome", [None, "rolled-back", "interrupted", "failed", "inconclusive"])
def test_what_an_unfinished_delivery_promoted_goes_back_to_what_was_before(outcome: str | None) -> None:
    assert before(PROMOTED_IN_ONE, a_delivery(outcome)) == {"eu": "1"}


@pytest.mark.parametrize("last", [None, a_delivery("delivered"), a_delivery(None, champion=None)])
def test_nothing_moves_where_no_delivery_is_unfinished(last: DeliverySummary | None) -> None:
    assert before(PROMOTED_IN_ONE, last) == {}


def test_a_region_that_is_behind_is_not_moved_forward() -> None:
    assert before(regions(a_region("eu", "2", "1"), a_region("us", "0")), a_delivery(None)) == {"eu": "1"}


def test_without_the_ledger_the_others_tell_what_was_before() -> None:
    assert before_by_others(PROMOTED_IN_ONE) == {"eu": "1"}
    everywhere = regions(a_region("eu", "2", "1"), a_region("us", "2", "1"))
    assert before_by_others(everywhere) == {}
    assert before_by_others(regions(a_region("eu", "2", "1"))) == {}


def test_previous_is_what_the_regions_keep_and_else_the_alias() -> None:
    same = regions(a_region("eu", "3", "2"), a_region("us", "3"))
    assert previous_of(same, None) == "2"
    assert previous_of(regions(a_region("eu", "3")), "2") == "2"


def test_previous_that_no_one_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="no region keeps a version before its own warm; choose one: --to VERSION"):
        previous_of(regions(a_region("eu", "3")), None)
    with pytest.raises(UsageError, match=r"different versions before theirs \(eu 2, us 1\); choose one: --to VERSION"):
        previous_of(regions(a_region("eu", "3", "2"), a_region("us", "3", "1")), None)


def test_it_is_said_where_a_version_is_warm() -> None:
    found = regions(a_region("eu", "3", warm="21"), a_region("us", "3", "2"), a_region("ap", "1"))
    assert cold(found, "1") == ["us"]
    assert in_words(found, "1") == (
        "eu: 3 -> 1 (warm); us: 3 -> 1 (has to be started again: minutes); ap: 1 -> 1 (it stays)"
    )


def test_a_region_is_back_when_nobody_is_on_trial() -> None:
    assert is_back(a_region("eu", "1"))
    assert not is_back(a_region("eu", "1", canary="2"))
    assert not is_back(a_region("eu", "1").model_copy(update={"weight": 5}))
    assert not is_back(a_region("eu", "1").model_copy(update={"mirror": 100}))
