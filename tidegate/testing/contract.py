"""The contract that every fleet keeps, as tests for pytest (with pytest-asyncio)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipelines.ports import Fleet, RemembersWayBack
from rollouts.errors import EngineDidNotStart, NotPossible
from rollouts.model import Engine, RegionPhase, RegionState, Role

MakeEngine = Callable[[str], Engine]


def versions(state: RegionState) -> tuple[str | None, ...]:
    """Stable, canary and previous."""
    return tuple(arm.version if arm else None for arm in (state.stable, state.canary, state.previous))


def region(state: RegionState) -> RegionState:
    """What the region is, without the note on how it came there."""
    return state.model_copy(update={"note": ""})


@pytest.mark.asyncio
class FleetContract:
    """Inherit it and bring the fixtures `fleet` (an empty region), `engine` and `broken` (makes a deploy fail)."""

    async def test_a_region_begins_empty(self, fleet: Fleet) -> None:
        state = await fleet.observe()
        assert (state.phase, versions(state)) == (RegionPhase.EMPTY, (None, None, None))

    async def test_the_first_engine_is_stable_at_once(self, fleet: Fleet, engine: MakeEngine) -> None:
        state = await fleet.deploy(engine("1"))
        assert state.phase is RegionPhase.STEADY
        assert versions(state) == ("1", None, None)
        assert state.stable and state.stable.ready and state.stable.role is Role.STABLE

    async def test_the_same_deploy_twice_changes_nothing(self, fleet: Fleet, engine: MakeEngine) -> None:
        first = await fleet.deploy(engine("1"))
        assert region(await fleet.deploy(engine("1"))) == region(first)
        trial = await fleet.deploy(engine("2"))
        assert region(await fleet.deploy(engine("2"))) == region(trial)

    async def test_the_second_engine_is_a_canary_without_traffic(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        state = await fleet.deploy(engine("2"))
        assert (state.phase, versions(state)) == (RegionPhase.TRIAL, ("1", "2", None))
        assert (state.weight, state.mirror) == (0, 0)

    async def test_traffic_moves_and_is_copied(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        await fleet.deploy(engine("2"))
        assert (await fleet.mirror(100)).mirror == 100
        assert (await fleet.mirror(0)).mirror == 0
        for weight in (5, 25, 50, 25):
            assert (await fleet.shift(weight)).weight == weight
        assert (await fleet.observe()).weight == 25

    async def test_a_promotion_keeps_the_old_stable_warm(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        await fleet.deploy(engine("2"))
        await fleet.shift(50)
        state = await fleet.promote()
        assert (state.phase, versions(state), state.weight) == (RegionPhase.STEADY, ("2", None, "1"), 0)
        assert state.previous and state.previous.ready
        assert region(await fleet.promote()) == region(state)

    async def test_a_rollback_takes_the_canary_away(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        await fleet.deploy(engine("2"))
        await fleet.shift(50)
        state = await fleet.rollback("1")
        assert (state.phase, versions(state), state.weight) == (RegionPhase.STEADY, ("1", None, None), 0)
        assert region(await fleet.rollback("1")) == region(state)

    async def test_a_rollback_without_a_name_only_takes_the_trial_away(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        await fleet.deploy(engine("2"))
        await fleet.promote()
        before = await fleet.rollback(None)
        assert before.stable
        assert (before.stable.version, before.warm) == ("2", ("1",))
        await fleet.deploy(engine("3"))
        await fleet.shift(50)
        state = await fleet.rollback(None)
        assert state.stable
        assert (state.stable.version, state.weight, state.canary) == ("2", 0, None)

    async def test_a_rollback_after_a_promotion_swaps_back(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        await fleet.deploy(engine("2"))
        await fleet.promote()
        state = await fleet.rollback("1")
        assert (state.phase, versions(state)) == (RegionPhase.STEADY, ("1", None, None))
        assert region(await fleet.rollback("1")) == region(state)

    async def test_a_region_that_remembers_says_where_an_open_delivery_goes_back_to(
        self, fleet: Fleet, engine: MakeEngine
    ) -> None:
        if not isinstance(fleet, RemembersWayBack):
            return
        await fleet.deploy(engine("1"))
        assert not await fleet.way_back()
        await fleet.deploy(engine("2"))
        await fleet.promote()
        assert await fleet.way_back() == "1"
        state = await fleet.restart("1")
        assert versions(state)[:2] == ("1", None)
        await fleet.settle()
        assert not await fleet.way_back()
        with pytest.raises(NotPossible):
            await fleet.restart("9")

    async def test_the_next_deploy_retires_the_warm_previous(self, fleet: Fleet, engine: MakeEngine) -> None:
        for version in ("1", "2"):
            await fleet.deploy(engine(version))
        await fleet.promote()
        assert versions(await fleet.deploy(engine("3"))) == ("2", "3", None)

    async def test_a_newer_canary_takes_the_place_of_an_older_one(self, fleet: Fleet, engine: MakeEngine) -> None:
        for version in ("1", "2"):
            await fleet.deploy(engine(version))
        await fleet.shift(25)
        state = await fleet.deploy(engine("3"))
        assert (versions(state), state.weight) == (("1", "3", None), 0)

    async def test_what_contradicts_the_region_is_not_possible(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        before = await fleet.observe()
        for operation in (fleet.promote(), fleet.shift(5), fleet.mirror(5), fleet.rollback("9")):
            with pytest.raises(NotPossible):
                await operation
        assert region(await fleet.observe()) == region(before)

    async def test_an_engine_that_does_not_start_changes_nothing_for_users(
        self, fleet: Fleet, engine: MakeEngine, broken: MakeEngine
    ) -> None:
        steady = await fleet.deploy(engine("1"))
        with pytest.raises(EngineDidNotStart) as caught:
            await fleet.deploy(broken("2"))
        assert "out of memory" in (caught.value.detail or "")
        assert region(await fleet.observe()) == region(steady)
