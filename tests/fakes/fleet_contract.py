"""What every `Fleet` promises, whatever its engines and its proxy are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from rollouts.errors import EngineDidNotStart, NotPossible
from rollouts.model import Engine, Phase, RegionState, Role


class Fleet(Protocol):
    """As `pipelines.ports.Fleet`."""

    async def deploy(self, engine: Engine) -> RegionState: ...
    async def mirror(self, percent: int) -> RegionState: ...
    async def shift(self, weight: int) -> RegionState: ...
    async def promote(self) -> RegionState: ...
    async def rollback(self, to: str | None) -> RegionState: ...
    async def observe(self) -> RegionState: ...


MakeEngine = Callable[[str], Engine]


def versions(state: RegionState) -> tuple[str | None, ...]:
    """Stable, canary and previous."""
    return tuple(arm and arm.version for arm in (state.stable, state.canary, state.previous))


class FleetContract:
    """Inherit it and bring the fixtures `fleet` (an empty region), `engine` and `broken` (makes a deploy fail)."""

    async def test_a_region_begins_empty(self, fleet: Fleet) -> None:
        state = await fleet.observe()
        assert (state.phase, versions(state)) == (Phase.EMPTY, (None, None, None))

    async def test_the_first_engine_is_stable_at_once(self, fleet: Fleet, engine: MakeEngine) -> None:
        state = await fleet.deploy(engine("1"))
        assert state.phase is Phase.STEADY
        assert versions(state) == ("1", None, None)
        assert state.stable and state.stable.ready and state.stable.role is Role.STABLE

    async def test_the_same_deploy_twice_changes_nothing(self, fleet: Fleet, engine: MakeEngine) -> None:
        first = await fleet.deploy(engine("1"))
        assert await fleet.deploy(engine("1")) == first
        trial = await fleet.deploy(engine("2"))
        assert await fleet.deploy(engine("2")) == trial

    async def test_the_second_engine_is_a_canary_without_traffic(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        state = await fleet.deploy(engine("2"))
        assert (state.phase, versions(state)) == (Phase.TRIAL, ("1", "2", None))
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
        assert (state.phase, versions(state), state.weight) == (Phase.STEADY, ("2", None, "1"), 0)
        assert state.previous and state.previous.ready
        assert await fleet.promote() == state

    async def test_a_rollback_takes_the_canary_away(self, fleet: Fleet, engine: MakeEngine) -> None:
        await fleet.deploy(engine("1"))
        await fleet.deploy(engine("2"))
        await fleet.shift(50)
        state = await fleet.rollback("1")
        assert (state.phase, versions(state), state.weight) == (Phase.STEADY, ("1", None, None), 0)
        assert await fleet.rollback("1") == state

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
        assert (state.phase, versions(state)) == (Phase.STEADY, ("1", None, None))
        assert await fleet.rollback("1") == state

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
        for wish in (fleet.promote(), fleet.shift(5), fleet.mirror(5), fleet.rollback("9")):
            with pytest.raises(NotPossible):
                await wish
        assert await fleet.observe() == before

    async def test_an_engine_that_does_not_start_changes_nothing_for_users(
        self, fleet: Fleet, engine: MakeEngine, broken: MakeEngine
    ) -> None:
        steady = await fleet.deploy(engine("1"))
        with pytest.raises(EngineDidNotStart) as caught:
            await fleet.deploy(broken("2"))
        assert "out of memory" in (caught.value.detail or "")
        assert await fleet.observe() == steady
