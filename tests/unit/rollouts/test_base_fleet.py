"""A fleet of three methods keeps the contract, and does what the fleet of this machine does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.base import BaseFleet, RegionReading, RegionSplit, ServingVersion
from rollouts.errors import EngineDidNotStart, NotConfirmed, NotPossible
from rollouts.local.region import LocalRegion
from rollouts.model import Engine, RegionPhase, RegionState
from tidegate.core.errors import TidegateError
from tidegate.testing import FakeClock, FakeEngines, FakeProxy, an_engine, fleet_contract, versions


@dataclass
class Platform:
    """Somebody's platform: what runs, and how traffic is spread."""

    engines: dict[str, ServingVersion] = field(default_factory=dict)
    split: RegionSplit = field(default_factory=RegionSplit)
    refused: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    deaf: bool = False
    """Whether it takes a split and does nothing."""


class PlatformFleet(BaseFleet):
    """The three methods, and `stop`."""

    confirm_seconds = 1.0

    def __init__(self, platform: Platform) -> None:
        super().__init__("eu-west-1", entry="http://eu-west-1.test", clock=FakeClock())
        self.platform = platform

    async def start(self, engine: Engine) -> None:
        self.platform.log.append(f"start {engine.version}")
        await asyncio.sleep(0)
        if engine.version in self.platform.refused:
            raise EngineDidNotStart(f"version {engine.version} did not start", detail="out of memory")
        self.platform.engines[engine.version] = ServingVersion(version=engine.version, digest=engine.digest)

    async def route(self, split: RegionSplit) -> None:
        self.platform.log.append(f"route {split.stable}/{split.canary}/{split.previous} {split.weight} {split.mirror}")
        if not self.platform.deaf:
            self.platform.split = split

    async def read(self) -> RegionReading:
        return RegionReading(split=self.platform.split, engines=tuple(self.platform.engines.values()))

    async def stop(self, version: str) -> None:
        self.platform.log.append(f"stop {version}")
        del self.platform.engines[version]


def a_platform_fleet() -> PlatformFleet:
    return PlatformFleet(Platform())


def an_engine_without_memory(fleet: PlatformFleet, version: str) -> Engine:
    fleet.platform.refused.add(version)
    return an_engine(version)


TestPlatformFleet = fleet_contract(a_platform_fleet, broken=an_engine_without_memory)


async def test_users_leave_an_engine_before_it_stops() -> None:
    fleet = a_platform_fleet()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    await fleet.shift(25)
    fleet.platform.log.clear()
    await fleet.rollback(None)
    assert fleet.platform.log == ["route 1/None/None 0 0", "stop 2"]


async def test_room_is_made_before_an_engine_starts() -> None:
    fleet = a_platform_fleet()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    await fleet.shift(25)
    fleet.platform.log.clear()
    await fleet.deploy(an_engine("3"))
    assert fleet.platform.log == ["route 1/None/None 0 0", "stop 2", "start 3", "route 1/3/None 0 0"]


async def test_another_process_goes_on_where_the_last_one_stopped() -> None:
    platform = Platform()
    for version in ("1", "2"):
        await PlatformFleet(platform).deploy(an_engine(version))
    await PlatformFleet(platform).shift(50)
    assert versions(await PlatformFleet(platform).promote()) == ("2", None, "1")


async def test_what_was_done_before_is_not_done_again() -> None:
    fleet = a_platform_fleet()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    await fleet.shift(25)
    fleet.platform.log.clear()
    await fleet.shift(25)
    await fleet.deploy(an_engine("2"))
    assert fleet.platform.log == []


async def test_traffic_that_does_not_follow_is_an_error() -> None:
    fleet = a_platform_fleet()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    fleet.platform.deaf = True
    with pytest.raises(NotConfirmed, match="traffic does not follow after 1 s"):
        await fleet.shift(25)
    # Nothing stops while users may still be on it.
    with pytest.raises(NotConfirmed):
        await fleet.rollback(None)
    assert set(fleet.platform.engines) == {"1", "2"}


async def test_a_rollback_does_not_wait_for_an_engine_that_starts() -> None:
    fleet = a_platform_fleet()
    await fleet.deploy(an_engine("1"))
    begun = asyncio.Event()

    async def start_forever(engine: Engine) -> None:
        begun.set()
        await asyncio.Event().wait()

    fleet.start = start_forever  # type: ignore[method-assign]
    deploying = asyncio.create_task(fleet.deploy(an_engine("2")))
    await begun.wait()
    assert versions(await fleet.rollback(None)) == ("1", None, None)
    with pytest.raises(NotPossible, match="version 2 was rolled back while it started"):
        await deploying


async def test_a_version_that_is_gone_is_down_and_says_so() -> None:
    fleet = a_platform_fleet()
    for version in ("1", "2"):
        await fleet.deploy(an_engine(version))
    del fleet.platform.engines["2"]
    state = await fleet.observe()
    assert (state.phase, state.canary and state.canary.problem) == (RegionPhase.DEGRADED, "nothing of it runs")


async def test_a_stable_that_died_starts_again_in_its_role() -> None:
    fleet = a_platform_fleet()
    await fleet.deploy(an_engine("1"))
    del fleet.platform.engines["1"]
    state = await fleet.deploy(an_engine("1"))
    assert (state.phase, versions(state)) == (RegionPhase.STEADY, ("1", None, None))


VERSIONS = st.sampled_from("123")
PERCENT = st.sampled_from([-1, 0, 5, 50, 100, 101])
OPERATIONS = st.one_of(
    st.tuples(st.just("deploy"), VERSIONS),
    # Twice: most of what can go wrong needs two promotions and an engine that does not start.
    st.tuples(st.just("deploy"), VERSIONS),
    st.tuples(st.just("promote"), st.none()),
    st.tuples(st.just("deploy other files"), VERSIONS),
    st.tuples(st.just("refuse"), VERSIONS),
    st.tuples(st.just("allow"), VERSIONS),
    st.tuples(st.just("die"), VERSIONS),
    st.tuples(st.just("mirror"), PERCENT),
    st.tuples(st.just("shift"), PERCENT),
    st.tuples(st.just("promote"), st.none()),
    st.tuples(st.just("rollback"), VERSIONS | st.none()),
)


class TwoRegions:
    """The same operations, done to the region of this machine and to a fleet of three methods."""

    def __init__(self) -> None:
        self.engines = FakeEngines()
        proxy = FakeProxy("eu-west-1")
        self.local = LocalRegion("eu-west-1", proxy=proxy, engines=self.engines, clock=FakeClock())
        self.own = a_platform_fleet()

    async def do(self, operation: str, value: object) -> None:
        """What is not an operation of a fleet happens to both platforms."""
        version = str(value)
        if operation == "refuse":
            self.engines.refusals[version] = "out of memory"
            self.own.platform.refused.add(version)
        elif operation == "allow":
            self.engines.refusals.pop(version, None)
            self.own.platform.refused.discard(version)
        elif operation == "die":
            self._kill(version)
        else:
            local, own = [await outcome(fleet, operation, value) for fleet in (self.local, self.own)]
            assert own == local
            assert sorted(each.version for each in self.own.platform.engines.values() if each.ready) == sorted(
                self.engines.running()
            )

    def _kill(self, version: str) -> None:
        """Any but the stable, which the supervisor of this machine starts again."""
        running = self.own.platform.engines.get(version)
        if running and running.ready and self.own.platform.split.stable != version:
            self.own.platform.engines[version] = running.model_copy(update={"ready": False, "problem": "Killed"})
            self.engines.newest(version).last_words = "Killed"
            self.engines.newest(version).alive = False


async def outcome(fleet: LocalRegion | BaseFleet, operation: str, value: object) -> object:
    """The region after it, without addresses; or the refusal."""
    arguments: dict[str, tuple[object, ...]] = {
        "deploy": (an_engine(str(value)),),
        "deploy other files": (an_engine(str(value), digest="f" * 64),),
        "promote": (),
    }
    method = getattr(fleet, operation.partition(" ")[0])
    try:
        state: RegionState = await method(*arguments.get(operation, (value,)))
    except TidegateError as error:
        message = "" if isinstance(error, EngineDidNotStart) else error.message
        return type(error), message, error.detail, shape(await fleet.observe())
    return shape(state)


def shape(state: RegionState) -> dict[str, object]:
    """All that is said of a region but the addresses of its engines."""
    arms = {role: {"url"} for role in ("stable", "canary", "previous")}
    return state.model_dump(exclude={"entry": True, **arms})


@given(st.lists(OPERATIONS, max_size=20))
@settings(max_examples=300, deadline=None)
def test_it_agrees_with_the_fleet_of_this_machine(operations: list[tuple[str, object]]) -> None:
    async def both() -> None:
        regions = TwoRegions()
        for operation, value in operations:
            await regions.do(operation, value)

    asyncio.run(both())
