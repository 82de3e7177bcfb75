"""One region of a local fleet: engines and a proxy of this machine, by the rules of every fleet (`rollouts.base`).

The order is always the same: what users shall reach comes up first, then the routes change and the
proxy confirms it, then what serves nobody any more drains, and only then does it stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from rollouts.base import BaseFleet, RegionReading, RegionSplit, ServingVersion
from rollouts.errors import FleetError, NotPossible
from rollouts.model import Engine, RegionState, Role
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError
from tidegate.core.files import replace_file

DRAIN_SECONDS = 60.0
"""How long streams in flight may take before their engine stops all the same."""

DRAIN_POLL_SECONDS = 0.1

STOP_DRAIN_SECONDS = 5.0
"""As `DRAIN_SECONDS`, when the whole fleet ends and somebody waits at the terminal."""

log = logging.getLogger(__name__)


FIRST_WAIT_SECONDS = 1.0
"""After the first attempt that failed; the attempt itself comes at once."""

LONGEST_WAIT_SECONDS = 30.0
"""The wait doubles up to this: an engine that cannot start must not take the cores of those that serve."""


class RunningEngine(Protocol):
    """One engine that was started, until it is stopped."""

    engine: Engine
    """What was asked for."""
    port: int
    """On the loopback; an engine that is started again keeps it, so that routes stay true."""
    url: str
    """Its own address, past the proxy."""

    @property
    def alive(self) -> bool:
        """Whether the process runs."""

    def tail(self) -> str:
        """The last lines of its log."""

    async def busy(self) -> int:
        """How many requests it works on or holds in its queue; 0 when it is dead."""

    async def stop(self) -> None:
        """Ask it to end, wait, then make it. Also right for an engine that is dead already."""

    async def abandon(self) -> None:
        """End it at once: no user waits for an answer of it."""


class EngineRunner(Protocol):
    """Runs engines on this machine."""

    async def start(self, engine: Engine, *, port: int | None = None) -> RunningEngine:
        """Return once the engine answers as fast as it ever will; `port` when it must be a certain one.

        Raises:
            Refused: when the machine is too small; nothing was started.
            EngineDidNotStart: when it died or stayed unhealthy; nothing is left running.
        """


class RestartSupervisor:
    """Restarts engines at their old port, each time after twice the wait."""

    def __init__(self, engines: EngineRunner, clock: Clock) -> None:
        self._engines, self._clock = engines, clock
        self._efforts: dict[str, tuple[RunningEngine, asyncio.Task[RunningEngine]]] = {}
        """By version: the dead engine, and what brings another up in its place."""

    async def reconcile(self, running: dict[str, RunningEngine], wanted: Collection[str]) -> None:
        """Begin, or finish, what the dead of the `wanted` versions need; who came back takes its place in `running`."""
        for version, (dead, effort) in list(self._efforts.items()):
            if version not in wanted or running.get(version) is not dead:
                await self._drop(version)
            elif effort.done():
                running[version] = effort.result()
                del self._efforts[version]
        for version in wanted:
            if (there := running.get(version)) and not there.alive and version not in self._efforts:
                # Its process is gone; this ends what is left of its group and gives its memory back.
                await there.stop()
                log.warning("version %s died:\n%s", version, there.tail())
                self._efforts[version] = there, asyncio.create_task(self._start_again(there))

    async def stop(self) -> None:
        """Give up on everything."""
        for version in list(self._efforts):
            await self._drop(version)

    async def _start_again(self, dead: RunningEngine) -> RunningEngine:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                return await self._engines.start(dead.engine, port=dead.port)
            except TidegateError as error:
                log.warning("version %s does not come back: %s", dead.engine.version, error)
            await self._clock.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    async def _drop(self, version: str) -> None:
        """Stop what was started for an engine that nobody waits for any more."""
        _, effort = self._efforts.pop(version)
        effort.cancel()
        (outcome,) = await asyncio.gather(effort, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.stop()


class Proxy(Protocol):
    """The one endpoint of a region, behind which engines change."""

    entry: str
    """The address that users talk to; it never changes while the region is up."""

    @property
    def alive(self) -> bool: ...

    async def swap(self, split: RegionSplit, ports: Mapping[str, int]) -> None:
        """Return once every new request goes by `split` to engines at those ports, by version.

        The previous serves only what no other engine takes. Requests in flight stay where they are.
        """

    async def prune(self) -> None:
        """Forget engines that the routes of the last `swap` do not name, as far as no request is in flight on them."""

    async def active(self, version: str) -> int:
        """How many requests are in flight on that version, whatever its role."""

    async def restart(self) -> None:
        """Start again at the same address with the routes of the last `swap`."""

    async def stop(self) -> None:
        """Close the endpoint."""


class LocalRegion(BaseFleet):
    """A `Fleet` of processes on this machine."""

    def __init__(
        self, region: str, *, proxy: Proxy, engines: EngineRunner, clock: Clock, kept: Path | None = None
    ) -> None:
        """`proxy` is open already, with nothing behind it; `kept` is where the way back is noted, None for nowhere."""
        super().__init__(region, entry=proxy.entry, clock=clock)
        self._kept = kept
        self._before = _noted(kept)
        """What served before the delivery that is open here; None while none is."""
        self._returning = False
        """Whether what starts is the way back, which is no trial."""
        self._proxy = proxy
        self._engines = engines
        self._running: dict[str, RunningEngine] = {}
        """By version."""
        self._split = RegionSplit()
        self._changing = asyncio.Lock()
        """Held while the routes change, or what died is started again: milliseconds."""
        self._supervisor = RestartSupervisor(engines, clock)
        self._met: set[str] = set()
        """The versions that users have been sent to: their streams may be open."""
        self._taken_away = ""
        """Why the last trial was ended here; empty when it was not, and once another one begins."""

    @property
    def on_trial(self) -> bool:
        """Whether a canary is up or coming up."""
        starting = self._starting is not None and self._split.stable is not None
        return not self._returning and (self._split.canary is not None or starting)

    @property
    def service(self) -> str | None:
        """What users ask the region for, as the field `model` of their requests; None before its first engine."""
        stable = self._running.get(self._split.stable or "")
        return stable.engine.model if stable else None

    async def start(self, engine: Engine) -> None:
        running = await self._engines.start(engine)
        before, self._running[engine.version] = self._running.get(engine.version), running
        if before:
            # Of a stable that had died: users are still led to its port.
            await self.route(self._split)
            await before.stop()

    async def route(self, split: RegionSplit) -> None:
        async with self._changing:
            await self._swap(split)

    async def read(self) -> RegionReading:
        engines = tuple(
            ServingVersion(
                version=version,
                digest=running.engine.digest,
                url=running.url,
                ready=running.alive,
                problem=None if running.alive else running.tail(),
            )
            for version, running in self._running.items()
        )
        return RegionReading(split=self._split, engines=engines, entry_up=self._proxy.alive)

    async def stop(self, version: str) -> None:
        """Once its streams have ended, if users have met it."""
        running, met = self._running.pop(version), version in self._met
        self._met.discard(version)
        if not met:
            await running.abandon()
            return
        if not await self._drained(running, DRAIN_SECONDS):
            log.warning("%s: version %s stops with streams in flight", self.region, version)
        await running.stop()

    async def rollback(self, to: str | None) -> RegionState:
        state = await super().rollback(to)
        # A region that was promoted stays so where only its trial is taken away.
        if to is not None or (self._before and self._split.stable == self._before.version):
            self._note(None)
        return state

    async def way_back(self) -> str:
        """The version that served before the delivery that is open here; empty where none is."""
        return self._before.version if self._before else ""

    async def settle(self) -> None:
        """The delivery is over, and what serves stays."""
        async with self._operation:
            self._note(None)

    async def restart(self, version: str) -> RegionState:
        """All users to the version of before the delivery, which is no longer warm, as this host keeps it.

        Raises:
            NotPossible: it is another one.
            EngineDidNotStart: it did not come up; users are where they were.
        """
        # As in `rollback`: it waits for no engine that nobody wants any more.
        self._give_up_start()
        async with self._operation:
            engine = self._before
            if engine is None or engine.version != version:
                raise NotPossible(
                    f"nothing of version {version} is kept here",
                    hint="start it by what MLflow keeps: `tidegate rollback --to VERSION --start`",
                )
            self._returning = True
            try:
                await self._bring_up(await self.read(), engine)
                await self._become((await self.read()).promoted())
            finally:
                self._returning = False
            self._note(None)
            return await self.observe()

    async def end_trial(self, why: str) -> RegionState:
        """All users on the stable: nobody carries the trial any more. `why` is told until another one begins.

        Raises:
            FleetError: it could not be done; it may be repeated.
        """
        stable, canary = self._split.stable, self._split.canary
        if stable is None:
            return await self.observe()
        what = f"version {canary}" if canary else "a version that was starting"
        # First: the one who finds the canary gone finds out why.
        self._taken_away = f"{what} was rolled back here at {self._clock.now():%H:%M:%S} UTC: {why}"
        return await self.rollback(stable)

    async def close(self) -> None:
        """Let streams in flight end for a few seconds, then leave nothing running."""
        self._give_up_start()
        async with self._operation, self._changing:
            # First of all: it would start again what is stopped below.
            await self._supervisor.stop()
            left, self._running, self._split = list(self._running.values()), {}, RegionSplit()
            await asyncio.gather(*(self._drained(running, STOP_DRAIN_SECONDS) for running in left))
            await self._proxy.stop()
            await asyncio.gather(*(running.stop() for running in left))

    async def reconcile(self) -> None:
        """Restart what died, and take users off a dead canary; called by the host in a loop."""
        async with self._changing:
            if not self._proxy.alive:
                log.warning("%s: the proxy died; starting it again", self.region)
                await self._proxy.restart()
            split = self._split
            # A canary stays dead: it is on trial.
            await self._supervisor.reconcile(self._running, list(filter(None, (split.stable, split.previous))))
            await self._proxy.prune()
            if split.canary and not self._lives(split.canary) and (split.weight or split.mirror):
                log.warning("%s: the canary, version %s, died; users are on the stable", self.region, split.canary)
                # It stays visible without traffic, so that the one who delivers learns why.
                await self._swap(split.model_copy(update={"weight": 0, "mirror": 0}))

    def _told(self, reading: RegionReading) -> RegionState:
        return super()._told(reading).model_copy(update={"taken_away": self._taken_away})

    async def _confirmed(self, wanted: RegionSplit) -> RegionReading:  # noqa: ARG002  # the proxy has said so
        return await self.read()

    async def _bring_up(self, reading: RegionReading, engine: Engine) -> None:
        self._taken_away = ""
        stable = self._running.get(reading.split.stable or "")
        # What serves now, unless `engine` is what a delivery that was left half done goes back to.
        if stable and engine.version not in {stable.engine.version, (self._before or stable.engine).version}:
            self._note(stable.engine)
        await super()._bring_up(reading, engine)

    def _note(self, before: Engine | None) -> None:
        self._before = before
        if self._kept and before:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._kept, before.model_dump_json(indent=1))
        elif self._kept:
            self._kept.unlink(missing_ok=True)

    async def _swap(self, split: RegionSplit) -> None:
        begun = self._clock.monotonic()
        # Before the routes change: who comes meanwhile counts. A canary without weight answers copies and probes, for
        # which nobody waits.
        for each in (self._split, split):
            self._met |= {version for role, version in each.versions.items() if role is not Role.CANARY or each.weight}
        # A canary that is dead is not on the map.
        dead = {} if self._lives(split.canary) else {"canary": None, "weight": 0, "mirror": 0}
        await self._proxy.swap(
            split.model_copy(update=dead), {version: each.port for version, each in self._running.items()}
        )
        self._split = split
        log.info("%s: %s in %.1f ms", self.region, split, (self._clock.monotonic() - begun) * 1000)

    def _lives(self, version: str | None) -> bool:
        running = self._running.get(version or "")
        return running is not None and running.alive

    async def _drained(self, running: RunningEngine, seconds: float) -> bool:
        """Whether nothing is in flight any more, seen twice: a request may be on its way from proxy to engine."""
        deadline = self._clock.monotonic() + seconds
        quiet = 0
        while running.alive and quiet < 2:
            try:
                idle = await self._proxy.active(running.engine.version) == 0 and await running.busy() == 0
            except FleetError:
                # No answer says nothing about streams: look again until the deadline.
                idle = False
            quiet = quiet + 1 if idle else 0
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(DRAIN_POLL_SECONDS)
        return True


def _noted(kept: Path | None) -> Engine | None:
    """As an earlier host of the same delivery left it."""
    if kept is None or not kept.exists():
        return None
    try:
        return Engine.model_validate_json(kept.read_bytes())
    except (OSError, ValidationError) as error:
        log.warning("%s is no note of a way back, and is left alone: %s", kept, error)
        return None
