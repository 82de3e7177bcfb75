"""A fleet of one's own: who brings `start`, `route` and `read` gets every operation of a fleet, in the safe order.

The fleet on this machine is one (`rollouts.local.region`), and that of two backends of a route (`cluster.route`).
Nothing is kept between two calls: what serves is read each time, so that a process that resumes a delivery finds what
the last one left.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from rollouts.errors import NotConfirmed, NotPossible
from rollouts.model import Engine, EngineSet, RegionPhase, RegionState, Role, require_percent
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
    def versions(self) -> Mapping[Role, str]:
        """Those that have a role; any other serves nobody."""
        found = {Role.STABLE: self.stable, Role.CANARY: self.canary, Role.PREVIOUS: self.previous}
        return {role: version for role, version in found.items() if version is not None}


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
    """What `BaseFleet.read` found, and what each operation makes of it."""

    split: RegionSplit = RegionSplit()
    """As it is in force now, with the roles that `route` was given last."""
    engines: tuple[ServingVersion, ...] = ()
    """Every version that runs, with a role or without."""
    entry_up: bool = True
    """Whether the address that users talk to answers."""

    def engine(self, version: str) -> ServingVersion:
        """That of a version with a role: one that is down where nothing of it runs."""
        gone = ServingVersion(version=version, ready=False, problem="nothing of it runs")
        return next((each for each in self.engines if each.version == version), gone)

    def serves(self, engine: Engine) -> bool:
        """Whether the engine serves as stable or canary already, so that a deploy of it changes nothing.

        Raises:
            NotPossible: its version serves other files here.
        """
        role = next((role for role, each in self.split.versions.items() if each == engine.version), None)
        if role is None:
            return False
        here = self.engine(engine.version)
        if here.digest not in {"", engine.digest}:
            raise NotPossible(
                f"version {engine.version} runs here already, with other files", hint="register a new version"
            )
        # The warm previous runs, but not in the role that is asked for: it must become the canary.
        return here.ready and role is not Role.PREVIOUS

    def promoted(self) -> RegionSplit:
        """The canary serves everybody; the old stable waits, and who waited before it goes. Idempotent.

        Raises:
            NotPossible: when there is no canary, or it is dead.
        """
        # A deploy retires the warm previous; one that is here without a canary means: promoted already.
        if self.split.previous and not self.split.canary:
            return self.split
        return RegionSplit(stable=self._trial("promote"), previous=self.split.stable)

    def shifted(self, weight: int) -> RegionSplit:
        """That percent of users on the canary.

        Raises:
            NotPossible: when there is no canary to take them.
        """
        return self._given("weight", weight, f"shift {weight} % of users to")

    def mirrored(self, percent: int) -> RegionSplit:
        """That percent of requests copied to the canary.

        Raises:
            NotPossible: when there is no canary to take them.
        """
        return self._given("mirror", percent, f"mirror {percent} % of requests to")

    def _given(self, share: str, percent: int, operation: str) -> RegionSplit:
        # Taking users away from a canary is always possible, also from one that is dead.
        if percent:
            self._trial(operation)
        require_percent(percent)
        return self.split.model_copy(update={share: percent})

    def rolled_back(self, to: str | None) -> RegionSplit:
        """All users on version `to`, which is the stable one (None) or the one before it.

        Raises:
            NotPossible: when no engine of that version is warm.
        """
        stable, previous = self.split.stable, self.split.previous
        if to is None or stable == to:
            return RegionSplit(stable=stable, previous=previous)
        # The canary is not asked: going back to what is on trial is no way back.
        if previous == to:
            if not (waiting := self.engine(to)).ready:
                raise NotPossible(
                    f"version {to} is down, being restarted",
                    hint="wait until it is up again: `tidegate status`",
                    detail=waiting.problem,
                )
            return RegionSplit(stable=previous)
        warm = " and ".join(filter(None, (stable, previous)))
        raise NotPossible(
            f"version {to} is not warm here, so there is no going back to it", hint=f"warm: {warm or '-'}"
        )

    def _trial(self, operation: str) -> str:
        version = self.split.canary
        if version is None:
            raise NotPossible(f"there is no canary to {operation}", hint="deploy one first")
        if not (canary := self.engine(version)).ready:
            raise NotPossible(
                f"the canary, version {version}, died: cannot {operation} it",
                hint="roll it back: `tidegate rollback`; --debug shows the end of its log",
                detail=canary.problem,
            )
        return version

    def state(self, region: str, entry: str) -> RegionState:
        """The region as an outsider sees it."""
        seen = dict[Role, EngineSet]()
        for role, version in self.split.versions.items():
            problem = None if (engine := self.engine(version)).ready else engine.problem or "it died without a word"
            seen[role] = EngineSet(**engine.model_dump(exclude={"problem"}), role=role, problem=problem)
        problems = [] if self.entry_up else ["the proxy is down"]
        problems += [f"{arm.role} (version {arm.version}) is down" for arm in seen.values() if not arm.ready]
        if self.split.stable is None:
            phase = RegionPhase.EMPTY
        # Before the trial: the one who waits for a region to be well need not poll each engine.
        elif problems:
            phase = RegionPhase.DEGRADED
        else:
            phase = RegionPhase.TRIAL if self.split.canary else RegionPhase.STEADY
        previous = seen.get(Role.PREVIOUS)
        return RegionState(
            region=region,
            phase=phase,
            entry=entry,
            stable=seen.get(Role.STABLE),
            canary=seen.get(Role.CANARY),
            previous=previous,
            warm=(previous.version,) if previous and previous.ready else (),
            weight=self.split.weight,
            mirror=self.split.mirror,
            problem="; ".join(problems) or None,
        )


class BaseFleet(ABC):
    """One region whose engines and traffic somebody else's platform moves; a `Fleet` of three methods."""

    confirm_seconds = CONFIRM_SECONDS

    def __init__(self, region: str, *, entry: str = "", clock: Clock | None = None) -> None:
        """`entry` is the address that users talk to."""
        self.region = region
        self.entry = entry
        self._clock = clock or SystemClock()
        self._operation = asyncio.Lock()
        """Held while an operation runs: one at a time, up to minutes."""
        self._starting: asyncio.Task[None] | None = None
        """What brings an engine up, one at a time; who cancels it ends it, and not its caller."""

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
        return self._told(await self.read())

    async def deploy(self, engine: Engine) -> RegionState:
        """Bring the engine up at weight 0; in an empty region it becomes stable at once."""
        async with self._operation:
            reading = await self.read()
            if not reading.serves(engine):
                await self._bring_up(reading, engine)
            return self._told(await self.read())

    async def mirror(self, percent: int) -> RegionState:
        """Copy that share of users' requests to the canary."""
        return await self._change(lambda reading: reading.mirrored(percent))

    async def shift(self, weight: int) -> RegionState:
        """Give that percent of users to the canary."""
        return await self._change(lambda reading: reading.shifted(weight))

    async def promote(self) -> RegionState:
        """Make the canary stable; the old stable stays warm."""
        return await self._change(RegionReading.promoted)

    async def rollback(self, to: str | None) -> RegionState:
        """All users on version `to`, or on the stable one; an engine that is starting is given up."""
        # Before the lock: a deploy holds it for as long as its engine takes to start.
        self._give_up_start()
        return await self._change(lambda reading: reading.rolled_back(to))

    async def _change(self, rule: Callable[[RegionReading], RegionSplit]) -> RegionState:
        async with self._operation:
            await self._become(rule(await self.read()))
            return self._told(await self.read())

    def _told(self, reading: RegionReading) -> RegionState:
        return reading.state(self.region, self.entry)

    async def _bring_up(self, reading: RegionReading, engine: Engine) -> None:
        """From the warm previous, or by a start: what users shall reach is up before they are moved."""
        split, version = reading.split, engine.version
        trial = RegionSplit(stable=split.stable, canary=version)
        if split.previous == version and reading.engine(version).ready:
            await self._become(trial)
            return
        if split.stable not in {None, version}:
            # Memory suffices for two engines per region, rarely for three.
            await self._become(RegionSplit(stable=split.stable))
        await self._started(engine)
        if not (await self.read()).engine(version).ready:
            raise NotConfirmed(
                f"{self.region}: version {version} was started, and `read` does not find it ready",
                hint="see its log",
            )
        # A stable that had died has its role still.
        if split.stable != version:
            await self._become(trial if split.stable else RegionSplit(stable=version))

    async def _started(self, engine: Engine) -> None:
        task = self._starting = asyncio.create_task(self.start(engine))
        try:
            await task
        except asyncio.CancelledError as error:
            caller = asyncio.current_task()
            if task.cancelled() and not (caller and caller.cancelling()):
                raise NotPossible(
                    f"version {engine.version} was rolled back while it started", hint="deliver it again"
                ) from error
            raise
        finally:
            self._starting = None

    def _give_up_start(self) -> None:
        if self._starting is not None:
            self._starting.cancel()

    async def _become(self, wanted: RegionSplit) -> None:
        """Traffic first and confirmed; then every engine without a role stops."""
        reading = await self.read()
        if reading.split != wanted:
            await self.route(wanted)
            reading = await self._confirmed(wanted)
        gone = [each.version for each in reading.engines if each.version not in wanted.versions.values()]
        await asyncio.gather(*map(self.stop, gone))

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
