"""A fleet of three methods keeps the contract: what each operation makes of what is read, and in which order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from rollouts.base import BaseFleet, RegionReading, RegionSplit, ServingVersion
from rollouts.errors import EngineDidNotStart, NotConfirmed, NotPossible
from rollouts.model import Engine, RegionPhase
from tidegate.testing import FakeClock, FleetContract, MakeEngine, an_engine, versions


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


class TestPlatformFleet(FleetContract):
    @pytest.fixture
    def fleet(self) -> PlatformFleet:
        return a_platform_fleet()

    @pytest.fixture
    def engine(self) -> MakeEngine:
        return an_engine

    @pytest.fixture
    def broken(self, fleet: PlatformFleet) -> MakeEngine:
        def make(version: str) -> Engine:
            fleet.platform.refused.add(version)
            return an_engine(version)

        return make


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


STABLE, CANARY, PREVIOUS = (ServingVersion(version=version) for version in "675")
TRIAL = RegionReading(split=RegionSplit(stable="6", canary="7", weight=25, mirror=100), engines=(STABLE, CANARY))
STEADY = RegionReading(split=RegionSplit(stable="6", previous="5"), engines=(STABLE, PREVIOUS))
DOWN = STABLE.model_copy(update={"ready": False})


def test_there_is_no_going_back_to_what_is_not_warm_or_on_trial() -> None:
    for reading, to, warm in ((STEADY, "1", "6 and 5"), (RegionReading(), "1", "-"), (TRIAL, "7", "6")):
        with pytest.raises(NotPossible, match=f"version {to} is not warm here") as refused:
            reading.rolled_back(to)
        assert refused.value.hint == f"warm: {warm}"


@pytest.mark.parametrize(
    ("reading", "phase"),
    [
        (RegionReading(), RegionPhase.EMPTY),
        (STEADY, RegionPhase.STEADY),
        (TRIAL, RegionPhase.TRIAL),
        (STEADY.model_copy(update={"engines": (DOWN, PREVIOUS)}), RegionPhase.DEGRADED),
        (STEADY.model_copy(update={"engines": (STABLE,)}), RegionPhase.DEGRADED),
        (TRIAL.model_copy(update={"engines": (STABLE,)}), RegionPhase.DEGRADED),
        (STEADY.model_copy(update={"entry_up": False}), RegionPhase.DEGRADED),
    ],
)
def test_the_phase_is_what_an_outsider_sees(reading: RegionReading, phase: RegionPhase) -> None:
    assert reading.state("eu-west-1", "http://eu").phase is phase


def test_everything_that_is_down_is_named_the_proxy_first() -> None:
    split = RegionSplit(stable="6", canary="7", previous="5")
    state = RegionReading(split=split, engines=(DOWN,), entry_up=False).state("eu-west-1", "http://eu")
    assert state.problem == (
        "the proxy is down; stable (version 6) is down; canary (version 7) is down; previous (version 5) is down"
    )
    assert [each and each.problem for each in (state.stable, state.canary)] == [
        "it died without a word",
        "nothing of it runs",
    ]
