"""The order in which a region does things, and what it does about deaths."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rollouts.errors import NotPossible
from rollouts.local.region import DRAIN_SECONDS, LocalRegion
from rollouts.model import Engine, RegionPhase
from tidegate.testing import FakeClock, FakeEngine, FakeEngines, FakeFleet, FakeProxy, an_engine


@pytest.fixture
async def fleet() -> FakeFleet:
    fleet = FakeFleet()
    await fleet.deploy(an_engine("6"))
    return fleet


@pytest.fixture
async def trial(fleet: FakeFleet) -> FakeFleet:
    await fleet.deploy(an_engine("7"))
    await fleet.shift(50)
    return fleet


async def test_users_leave_the_canary_before_it_stops(trial: FakeFleet) -> None:
    canary = trial.engines.newest("7")
    canary.in_flight = 5
    seen: list[tuple[bool, str | None]] = []
    busy = canary.busy

    async def look() -> int:
        seen.append((canary.alive, trial.proxy.routes.canary and "routed"))
        return await busy()

    canary.busy = look  # type: ignore[method-assign]
    await trial.rollback("6")
    assert len(seen) >= 6
    assert set(seen) == {(True, None)}
    assert trial.engines.running() == ["6"]


async def test_an_engine_that_never_drains_is_stopped_at_the_deadline() -> None:
    clock = FakeClock()
    fleet = FakeFleet(clock=clock)
    for version in ("6", "7"):
        await fleet.deploy(an_engine(version))

    async def always_busy() -> int:
        return 1

    fleet.engines.newest("7").busy = always_busy  # type: ignore[method-assign]
    await fleet.shift(50)
    await fleet.rollback("6")
    assert clock.elapsed == pytest.approx(DRAIN_SECONDS, abs=1)
    assert fleet.engines.running() == ["6"]


async def test_nobody_waits_for_the_copies_that_a_canary_without_users_still_answers() -> None:
    clock = FakeClock()
    fleet = FakeFleet(clock=clock)
    for version in ("6", "7"):
        await fleet.deploy(an_engine(version))
    await fleet.mirror(100)
    fleet.engines.newest("7").in_flight = 40
    await fleet.rollback("6")
    assert (clock.elapsed, fleet.engines.running()) == (0, ["6"])
    assert fleet.engines.newest("7").abandoned


async def test_a_canary_whose_users_have_left_drains_all_the_same(trial: FakeFleet) -> None:
    await trial.shift(0)
    await trial.mirror(100)
    trial.engines.newest("7").in_flight = 5
    await trial.rollback("6")
    assert trial.engines.newest("7").in_flight == 0
    assert not trial.engines.newest("7").abandoned


async def test_the_warm_previous_is_tried_again_without_a_start(trial: FakeFleet) -> None:
    await trial.promote()
    state = await trial.deploy(an_engine("6"))
    assert state.canary and state.canary.version == "6"
    assert len(trial.engines.started) == 2


async def test_a_version_never_changes_its_files(fleet: FakeFleet) -> None:
    with pytest.raises(NotPossible, match="other files"):
        await fleet.deploy(an_engine("6", digest="another"))


async def test_a_dead_canary_loses_its_users_and_stays_visible(trial: FakeFleet) -> None:
    trial.kill("7", last_words="Segmentation fault")
    state = await trial.observe()
    assert state.phase is RegionPhase.DEGRADED
    assert state.weight == 0
    assert state.canary and not state.canary.ready and state.canary.problem == "Segmentation fault"
    assert trial.proxy.routes.canary is None
    for operation in (trial.promote(), trial.shift(5), trial.mirror(5)):
        with pytest.raises(NotPossible, match="died") as caught:
            await operation
        assert caught.value.detail == "Segmentation fault"


async def test_a_dead_canary_is_never_started_again(trial: FakeFleet) -> None:
    trial.kill("7")
    for _ in range(5):
        await trial.observe()
    assert trial.engines.running() == ["6"]
    assert (await trial.deploy(an_engine("7"))).phase is RegionPhase.TRIAL, "only a new operation starts it"


async def test_a_dead_stable_comes_back_at_its_port(fleet: FakeFleet) -> None:
    port = fleet.engines.newest("6").port
    fleet.kill("6")
    await until(fleet, RegionPhase.STEADY)
    assert fleet.engines.newest("6").port == port
    assert len(fleet.engines.started) == 2


async def test_a_stable_that_cannot_start_is_tried_with_longer_and_longer_waits() -> None:
    clock = FakeClock()
    fleet = FakeFleet(clock=clock)
    await fleet.deploy(an_engine("6"))
    attempts: list[float] = []
    start = fleet.engines.start

    async def counted(engine: Engine, *, port: int | None = None) -> FakeEngine:
        attempts.append(clock.elapsed)
        return await start(engine, port=port)

    fleet.engines.start = counted  # type: ignore[method-assign]
    fleet.refuse("6")
    fleet.kill("6")
    while clock.elapsed < 70:
        await fleet.observe()
        await clock.sleep(0.1)
    waits = [round(later - earlier) for earlier, later in pairwise(attempts)]
    assert waits[:6] == [1, 2, 4, 8, 16, 30]


async def test_a_dead_previous_is_no_way_back_until_it_is_up_again(trial: FakeFleet) -> None:
    await trial.promote()
    trial.kill("6")
    with pytest.raises(NotPossible, match="being restarted"):
        await trial.rollback("6")
    await until(trial, RegionPhase.STEADY)
    state = await trial.rollback("6")
    assert state.stable and state.stable.version == "6"


async def test_a_dead_proxy_is_started_again_at_once(fleet: FakeFleet) -> None:
    fleet.proxy.alive = False
    await fleet.observe()
    assert fleet.proxy.restarts == 1


async def test_a_region_that_stops_leaves_nothing_running(trial: FakeFleet) -> None:
    await trial.promote()
    await trial.close()
    assert trial.engines.running() == []
    assert not trial.proxy.alive


async def until(fleet: FakeFleet, phase: RegionPhase) -> None:
    for _ in range(20):
        if (await fleet.observe()).phase is phase:
            return
    raise AssertionError(f"the region did not become {phase}")


async def test_a_weight_beyond_a_hundred_is_refused(trial: FakeFleet) -> None:
    for operation in (trial.shift(101), trial.shift(-1), trial.mirror(101)):
        with pytest.raises(NotPossible, match="no percentage"):
            await operation
    assert (await trial.observe()).weight == 50


def opened(kept: Path) -> tuple[LocalRegion, FakeEngines]:
    """An empty region of a host that has just come up."""
    engines = FakeEngines()
    return LocalRegion(
        "eu-west-1", proxy=FakeProxy("eu-west-1"), engines=engines, clock=FakeClock(), kept=kept
    ), engines


async def test_the_next_host_knows_the_way_back_and_starts_it_itself(tmp_path: Path) -> None:
    region, _ = opened(tmp_path / "way-back" / "eu-west-1.json")
    for version in ("6", "7"):
        await region.deploy(an_engine(version))
    await region.promote()
    region, engines = opened(tmp_path / "way-back" / "eu-west-1.json")
    await region.deploy(an_engine("7"))
    assert await region.way_back() == "6"
    trials: list[bool] = []
    start = engines.start

    async def watched(engine: Engine, *, port: int | None = None) -> FakeEngine:
        trials.append(region.on_trial)
        return await start(engine, port=port)

    engines.start = watched  # type: ignore[method-assign]
    state = await region.restart("6")
    # A host ends the trials of nobody: this is none.
    assert (state.stable and state.stable.version, trials) == ("6", [False])
    assert (await region.way_back(), list((tmp_path / "way-back").iterdir())) == ("", [])


async def test_there_is_no_way_back_once_users_are_back_or_have_been_sent_elsewhere(tmp_path: Path) -> None:
    region, _ = opened(tmp_path / "note")
    for version in ("6", "7"):
        await region.deploy(an_engine(version))
    await region.rollback(None)
    assert not await region.way_back()
    await region.deploy(an_engine("7"))
    await region.promote()
    # Only the trial goes, of which there is none.
    await region.rollback(None)
    assert await region.way_back() == "6"
    await region.rollback("6")
    assert not await region.way_back()
    with pytest.raises(NotPossible, match="nothing of version 7 is kept here"):
        await region.restart("7")


async def test_a_note_that_cannot_be_read_keeps_no_host_from_coming_up(tmp_path: Path) -> None:
    (tmp_path / "note").write_text('{"version"')
    region, _ = opened(tmp_path / "note")
    assert not await region.way_back()
