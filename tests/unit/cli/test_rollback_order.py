"""Going back to the previous champion: at once where it is warm, by a start where it is not."""

from __future__ import annotations

from typing import cast

import pytest
from fakes.fleet import FakeFleet, an_engine

from rollouts.adapters.host_client import LocalFleet
from rollouts.errors import EngineDidNotStart
from tidegate.cli.commands.rollback import _back


async def back(fleet: FakeFleet, version: str) -> None:
    # The port is the same; the command only ever meets fleets of this machine.
    await _back(cast(LocalFleet, fleet), an_engine(version))


@pytest.fixture
async def fleet() -> FakeFleet:
    """Version 2 serves; version 1 is warm behind it."""
    fleet = FakeFleet()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    await fleet.promote()
    return fleet


async def test_a_warm_previous_takes_over_without_a_start(fleet: FakeFleet) -> None:
    started = len(fleet.engines.started)
    await back(fleet, "1")
    assert len(fleet.engines.started) == started
    assert fleet.engines.running() == ["1"]


async def test_a_region_that_serves_it_already_only_loses_its_trial(fleet: FakeFleet) -> None:
    await fleet.deploy(an_engine("3"))
    await fleet.shift(50)
    await back(fleet, "2")
    state = await fleet.observe()
    assert state.stable
    assert (state.stable.version, state.canary, state.weight) == ("2", None, 0)


async def test_one_that_is_no_longer_warm_starts_before_users_move(
    fleet: FakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    await fleet.rollback("1")
    await back(fleet, "2")
    state = await fleet.observe()
    assert state.stable
    assert state.stable.version == "2"
    assert capsys.readouterr().err == "eu-west-1: version 2 is no longer warm and is started again\n"
    swaps = [route.stable.version for route in fleet.proxy.swaps if route.stable]
    assert swaps[-1] == "2"
    assert "2" in fleet.engines.running()


async def test_one_that_does_not_start_leaves_users_where_they_are(fleet: FakeFleet) -> None:
    fleet.refuse("9")
    with pytest.raises(EngineDidNotStart):
        await back(fleet, "9")
    state = await fleet.observe()
    assert state.stable
    assert state.stable.version == "2"
