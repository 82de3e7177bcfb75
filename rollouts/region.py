"""One region of a local fleet: says what a wish needs done, in the order that costs users nothing.

The order is always the same: what users shall reach comes up first, then the routes change and the
proxy confirms it, then what nobody reaches any more drains, and only then does it stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from rollouts.arms import Arms, routes, state
from rollouts.errors import FleetError, NotPossible
from rollouts.model import Engine, RegionState
from rollouts.ports import Engines, Proxy, RunningEngine
from rollouts.revival import Revival
from tidegate.core.clock import Clock

DRAIN_SECONDS = 60.0
"""How long streams in flight may take before their engine stops all the same."""

DRAIN_POLL_SECONDS = 0.1

STOP_DRAIN_SECONDS = 5.0
"""As `DRAIN_SECONDS`, when the whole fleet ends and somebody waits at the terminal."""

log = logging.getLogger(__name__)


class Region:
    """A `Fleet` of processes on this machine."""

    def __init__(self, region: str, *, proxy: Proxy, engines: Engines, clock: Clock) -> None:
        """`proxy` is open already, with nothing behind it."""
        self.region = region
        self._proxy = proxy
        self._engines = engines
        self._clock = clock
        self._arms = Arms()
        self._wish = asyncio.Lock()
        """Held while a wish is fulfilled: one at a time, up to minutes."""
        self._change = asyncio.Lock()
        """Held while the arms and the routes change: milliseconds."""
        self._starting: asyncio.Task[RunningEngine] | None = None
        """The engine that comes up now; a rollback does not wait for it but cancels it."""
        self._revival = Revival(engines, clock)

    @property
    def on_trial(self) -> bool:
        """Whether a canary is up or coming up."""
        return self._arms.canary is not None or (self._starting is not None and self._arms.stable is not None)

    @property
    def service(self) -> str | None:
        """What users ask the region for, as the field `model` of their requests; None before its first engine."""
        return self._arms.stable.engine.model if self._arms.stable else None

    async def observe(self) -> RegionState:
        return state(self.region, self._arms, entry=self._proxy.entry, proxy_alive=self._proxy.alive)

    async def deploy(self, engine: Engine) -> RegionState:
        async with self._wish:
            here = self._arms.running(engine.version)
            if here and here.engine.digest != engine.digest:
                raise NotPossible(
                    f"version {engine.version} runs here already, with other files", hint="register a new version"
                )
            # The warm previous runs, but not in the role that is asked for: it must become the canary.
            if not (here and here.alive and here is not self._arms.previous):
                await self._bring_up(engine)
            return await self.observe()

    async def mirror(self, percent: int) -> RegionState:
        async with self._wish:
            await self._become(lambda arms: arms.mirrored(percent=percent))
            return await self.observe()

    async def shift(self, weight: int) -> RegionState:
        async with self._wish:
            await self._become(lambda arms: arms.shifted(weight=weight))
            return await self.observe()

    async def promote(self) -> RegionState:
        async with self._wish:
            # A deploy retires the warm previous; one that is here without a canary says: promoted already.
            if self._arms.canary or not self._arms.previous:
                await self._become(Arms.promoted)
            return await self.observe()

    async def rollback(self, to: str | None) -> RegionState:
        # Before the lock: a deploy holds it for as long as its engine takes to start.
        if self._starting is not None:
            self._starting.cancel()
        async with self._wish:
            await self._become(lambda arms: arms.rolled_back(to))
            return await self.observe()

    async def stop(self) -> None:
        """Let streams in flight end for a few seconds, then leave nothing running."""
        if self._starting is not None:
            self._starting.cancel()
        async with self._wish, self._change:
            # First of all: it would start again what is stopped below.
            await self._revival.stop()
            left, self._arms = self._arms, Arms()
            await asyncio.gather(*(self._drained(running, STOP_DRAIN_SECONDS) for _, running in left))
            await self._proxy.stop()
            await asyncio.gather(*(running.stop() for _, running in left))

    async def tend(self) -> None:
        """One look after everything: called all the time by the host."""
        async with self._change:
            if not self._proxy.alive:
                log.warning("%s: the proxy died; starting it again", self.region)
                await self._proxy.restart()
            self._arms = await self._revival.tend(self._arms)
            await self._proxy.prune(routes(self._arms))
        canary = self._arms.canary
        if canary and not canary.alive and (self._arms.weight or self._arms.mirror):
            log.warning("%s: the canary, version %s, died; users are on the stable", self.region, canary.engine.version)
            # It stays visible without traffic, so that whoever delivers learns why.
            await self._become(lambda arms: arms.shifted(weight=0).mirrored(percent=0))

    async def _bring_up(self, engine: Engine) -> None:
        """First in an empty region, again from the warm previous, or anew beside the stable."""
        warm = self._arms.previous
        if self._arms.stable is None:
            first = await self._start(engine)
            await self._become(lambda arms: replace(arms, stable=first))
        elif warm and warm.alive and warm.engine.version == engine.version:
            await self._become(lambda arms: replace(arms.without_trial(), previous=None, canary=warm))
        else:
            # Who goes, goes first: a machine has memory for two engines a region, rarely for three.
            await self._become(lambda arms: Arms(stable=arms.stable))
            canary = await self._start(engine)
            await self._become(lambda arms: arms.with_trial(canary))

    async def _start(self, engine: Engine) -> RunningEngine:
        """Start it in a task of its own, so that a rollback can end the start and not the caller.

        Raises:
            NotPossible: a rollback came first.
        """
        self._starting = asyncio.create_task(self._engines.start(engine))
        try:
            return await self._starting
        except asyncio.CancelledError as error:
            if self._starting.cancelled() and not _being_cancelled():
                raise NotPossible(f"version {engine.version} was taken back while it started") from error
            raise
        finally:
            self._starting = None

    async def _become(self, change: Callable[[Arms], Arms]) -> None:
        """Routes first and confirmed; then whoever has no role any more drains and stops."""
        begun = self._clock.monotonic()
        async with self._change:
            before, after = self._arms, change(self._arms)
            await self._proxy.swap(routes(after))
            self._arms = after
        log.info("%s: %s in %.1f ms", self.region, _summary(after), (self._clock.monotonic() - begun) * 1000)
        # Outside the lock: a drain takes up to a minute, and tending must go on.
        kept = [running for _, running in after]
        await asyncio.gather(*(self._retire(running) for _, running in before if running not in kept))

    async def _retire(self, running: RunningEngine) -> None:
        if not await self._drained(running, DRAIN_SECONDS):
            log.warning("%s: version %s stops with streams in flight", self.region, running.engine.version)
        await running.stop()

    async def _drained(self, running: RunningEngine, seconds: float) -> bool:
        """Whether nothing is in flight any more, seen twice: a request may be on its way from proxy to engine."""
        deadline = self._clock.monotonic() + seconds
        quiet = 0
        while running.alive and quiet < 2:
            quiet = quiet + 1 if await self._idle(running) else 0
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(DRAIN_POLL_SECONDS)
        return True

    async def _idle(self, running: RunningEngine) -> bool:
        try:
            return await self._proxy.active(running.engine.version) == 0 and await running.busy() == 0
        except FleetError:
            # No answer says nothing about streams: look again until the deadline.
            return False


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _summary(arms: Arms) -> str:
    serving = ", ".join(f"{role} {running.engine.version}" for role, running in arms) or "empty"
    return f"{serving}; weight {arms.weight} %, mirror {arms.mirror} %"
