"""A fleet of one's own: who brings `start`, `route` and `read` gets every operation of a fleet, in the safe order.

The rules are those of the fleet on this machine (`rollouts.arms`). Nothing is kept between two calls: what serves is
read each time, so that a process that resumes a delivery finds what the last one left.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rollouts.arms import Arms, state
from rollouts.errors import NotConfirmed
from rollouts.model import Engine, RegionState, Role
from rollouts.starting import CancellableStart
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.model import Value

CONFIRM_SECONDS = 60.0
"""For traffic to follow a new split."""

CONFIRM_POLL_SECONDS = 0.2


class RegionSplit(Value):
    """Which versions have a role in a region, and how its users are spread over them."""

    stable: str | None = None
    """All users but those of the canary; None in an empty region."""
    canary: str | None = None
    previous: str | None = None
    """Stays warm without users."""
    weight: int = 0
    """Percent of users on the canary."""
    mirror: int = 0
    """Percent of users' requests copied to the canary."""

    @property
    def versions(self) -> frozenset[str]:
        """Those that have a role; any other serves nobody."""
        return frozenset(filter(None, (self.stable, self.canary, self.previous)))


class ServingVersion(Value):
    """A version whose engine runs in a region, or should."""

    version: str
    digest: str = ""
    """Of the model version's files, from `Engine.digest`; empty where it is not known."""
    url: str = ""
    """The engine's own address, past whatever spreads users; probes are sent there."""
    ready: bool = True
    problem: str | None = None
    """Why it is not ready."""


class RegionReading(Value):
    """What `BaseFleet.read` found."""

    split: RegionSplit = RegionSplit()
    """As it is in force now, with the roles that `route` was given last."""
    engines: tuple[ServingVersion, ...] = ()
    """Every version that runs, with a role or without."""
    entry_up: bool = True
    """Whether the address that users talk to answers."""


@dataclass(frozen=True)
class _ReadEngine:
    """An engine as it was read, for the rules."""

    engine: ServingVersion

    @property
    def url(self) -> str:
        return self.engine.url

    @property
    def alive(self) -> bool:
        return self.engine.ready

    def tail(self) -> str:
        return self.engine.problem or ""


_Arms = Arms[_ReadEngine]


class BaseFleet(ABC):
    """One region whose engines and traffic somebody else's platform moves; a `Fleet` of three methods."""

    confirm_seconds = CONFIRM_SECONDS

    def __init__(self, region: str, *, entry: str = "", clock: Clock | None = None) -> None:
        """`entry` is the address that users talk to."""
        self.region = region
        self.entry = entry
        self._clock = clock or SystemClock()
        self._operation = asyncio.Lock()
        """Held while an operation runs: one at a time."""
        self._start: CancellableStart[None] = CancellableStart()

    @abstractmethod
    async def start(self, engine: Engine) -> None:
        """Return once an engine of that version is ready, without users. Idempotent; a failure leaves nothing running.

        Raises:
            EngineDidNotStart: it died or stayed unhealthy; `detail` has its last lines.
        """

    @abstractmethod
    async def route(self, split: RegionSplit) -> None:
        """Spread users as `split` says, and keep it where `read` finds it, also in another process. Idempotent."""

    @abstractmethod
    async def read(self) -> RegionReading:
        """What runs and how users are spread, from the platform itself."""

    async def stop(self, version: str) -> None:  # noqa: B027  # a platform may do so by itself
        """End the engine of a version without a role, once its requests are answered. By default nothing is done."""

    async def observe(self) -> RegionState:
        """What the region is doing."""
        return await self._seen()

    async def deploy(self, engine: Engine) -> RegionState:
        """Bring the engine up at weight 0; in an empty region it becomes stable at once."""
        async with self._operation:
            arms = arms_of(await self.read())
            if not arms.serves(engine):
                await self._bring_up(arms, engine)
            return await self._seen()

    async def mirror(self, percent: int) -> RegionState:
        """Copy that share of users' requests to the canary."""
        return await self._change(lambda arms: arms.mirrored(percent=percent))

    async def shift(self, weight: int) -> RegionState:
        """Give that percent of users to the canary."""
        return await self._change(lambda arms: arms.shifted(weight=weight))

    async def promote(self) -> RegionState:
        """Make the canary stable; the old stable stays warm."""
        return await self._change(lambda arms: arms.promoted())

    async def rollback(self, to: str | None) -> RegionState:
        """All users on version `to`, or on the stable one; an engine that is starting is given up."""
        self._start.cancel()
        return await self._change(lambda arms: arms.rolled_back(to))

    async def _change(self, change: Callable[[_Arms], _Arms]) -> RegionState:
        async with self._operation:
            await self._become(change(arms_of(await self.read())))
            return await self._seen()

    async def _seen(self) -> RegionState:
        return self._told(await self.read())

    def _told(self, reading: RegionReading) -> RegionState:
        return state(self.region, arms_of(reading), entry=self.entry, proxy_alive=reading.entry_up)

    async def _bring_up(self, arms: _Arms, engine: Engine) -> None:
        """From the warm previous, or by a start: what users shall reach is up before they are moved."""
        if warm := arms.reusing(engine):
            await self._become(warm)
            return
        is_stable = arms.stable is not None and arms.stable.engine.version == engine.version
        if arms.stable is not None and not is_stable:
            await self._become(arms.making_room())
        await self._start.run(engine.version, self.start(engine))
        reading = await self.read()
        running = _by_version(reading).get(engine.version)
        if running is None or not running.alive:
            raise NotConfirmed(
                f"{self.region}: version {engine.version} was started, and `read` does not find it ready",
                hint="see its log",
            )
        # A stable that had died has its role still.
        if not is_stable:
            await self._become(arms_of(reading).started(running))

    async def _become(self, arms: _Arms) -> None:
        """Traffic first and confirmed; then every engine without a role stops."""
        wanted = _split_of(arms)
        reading = await self.read()
        if reading.split != wanted:
            await self.route(wanted)
            reading = await self._confirmed(wanted)
        for each in reading.engines:
            if each.version not in wanted.versions:
                await self.stop(each.version)

    async def _confirmed(self, wanted: RegionSplit) -> RegionReading:
        deadline = self._clock.monotonic() + self.confirm_seconds
        while True:
            reading = await self.read()
            if reading.split == wanted:
                return reading
            if self._clock.monotonic() >= deadline:
                raise NotConfirmed(
                    f"{self.region}: traffic does not follow after {self.confirm_seconds:.0f} s: "
                    f"asked for {wanted}, found {reading.split}",
                    hint="see `tidegate doctor`, or the log of the proxy",
                )
            await self._clock.sleep(CONFIRM_POLL_SECONDS)


def _by_version(reading: RegionReading) -> Mapping[str, _ReadEngine]:
    return {each.version: _ReadEngine(each) for each in reading.engines}


def arms_of(reading: RegionReading) -> _Arms:
    """The engines by role; a version with a role and without an engine is one that is down."""
    found, split = _by_version(reading), reading.split

    def engine(version: str | None) -> _ReadEngine | None:
        if version is None:
            return None
        gone = ServingVersion(version=version, ready=False, problem="nothing of it runs")
        return found.get(version) or _ReadEngine(gone)

    return Arms(
        stable=engine(split.stable),
        canary=engine(split.canary),
        previous=engine(split.previous),
        weight=split.weight,
        mirror=split.mirror,
    )


def _split_of(arms: _Arms) -> RegionSplit:
    versions = {role: running.engine.version for role, running in arms}
    return RegionSplit(
        stable=versions.get(Role.STABLE),
        canary=versions.get(Role.CANARY),
        previous=versions.get(Role.PREVIOUS),
        weight=arms.weight,
        mirror=arms.mirror,
    )
