"""Going back to the previous champion: at once where it is warm, by a start where it is not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.delivery.world import a_spec

from pipelines.adapters.rollback_records import RollbackLedger
from pipelines.ports import Fleet
from pipelines.state import StateFolder
from rollouts.errors import NotTheCarrier
from rollouts.model import Engine, RegionState
from tidegate.testing import FakeFleet, an_engine
from tidegate.way_back import Rollback, move_region


async def engine_before(_: Fleet, version: str) -> Engine:
    return an_engine(version)


def rollback_of(*fleets: FakeFleet) -> Rollback:
    """Of which no question goes to MLflow."""
    nowhere = Path("/nowhere")
    by_region = {fleet.region: fleet for fleet in fleets}
    spec = a_spec()
    records = RollbackLedger(spec, nowhere, None)
    return Rollback(spec, StateFolder(nowhere), by_region, by_region, records, engine_before)


@pytest.fixture
async def fleet() -> FakeFleet:
    """Version 2 serves; version 1 is warm behind it."""
    fleet = FakeFleet()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    await fleet.promote()
    return fleet


async def test_one_that_is_no_longer_warm_starts_before_users_move(
    fleet: FakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    await fleet.rollback("1")
    await move_region(rollback_of(fleet), fleet.region, "2", by_image=True)
    state = await fleet.observe()
    assert state.stable
    assert state.stable.version == "2"
    assert caplog.messages == [
        "eu-west-1: version 2 is no longer warm and is started again",
        "eu-west-1: all users are on version 2",
    ]
    swaps = [route.stable for route in fleet.proxy.swaps if route.stable]
    assert swaps[-1] == "2"
    assert "2" in fleet.engines.running()


class SlowToDrain(FakeFleet):
    """Its canary's engine ends long after it has lost its users."""

    def __init__(self) -> None:
        super().__init__()
        self.drained = asyncio.Event()

    async def rollback(self, to: str | None) -> RegionState:
        state = await super().rollback(to)
        await self.drained.wait()
        return state


async def test_that_users_are_back_is_said_before_the_canary_has_drained(caplog: pytest.LogCaptureFixture) -> None:
    fleet = SlowToDrain()
    fleet.drained.set()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    await fleet.shift(50)
    fleet.drained.clear()
    going_back = asyncio.ensure_future(rollback_of(fleet).now())
    async with asyncio.timeout(5):
        while not caplog.messages:
            await asyncio.sleep(0.01)
    assert not going_back.done()
    fleet.drained.set()
    await going_back
    assert caplog.messages == ["eu-west-1: all users are on version 1"]


async def test_on_the_way_to_another_version_it_says_where_users_go(
    fleet: FakeFleet, caplog: pytest.LogCaptureFixture
) -> None:
    rollback = rollback_of(fleet)
    await rollback.now("1")
    await move_region(rollback, fleet.region, "1")
    assert caplog.messages == [
        "eu-west-1: goes from version 2 to version 1",
        "eu-west-1: all users are on version 1",
    ]


class TakenByAnother(FakeFleet):
    """Another rollback holds its Lease."""

    async def rollback(self, to: str | None) -> RegionState:
        raise NotTheCarrier(f"it is carried by ann now, not to {to}")


@pytest.mark.parametrize("to", [None, "2"])
async def test_the_second_of_two_people_waits_for_what_the_first_one_does(fleet: FakeFleet, to: str | None) -> None:
    await fleet.deploy(an_engine("3"))
    await fleet.shift(50)
    second = replace(rollback_of(fleet), fleets={fleet.region: TakenByAnother()})
    waiting = asyncio.ensure_future(move_region(second, fleet.region, to) if to else second.now())
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    await fleet.rollback(to)
    async with asyncio.timeout(10):
        await waiting
