"""One region of a local fleet: carries out an operation in the order that costs users nothing.

The order is always the same: what users shall reach comes up first, then the routes change and the
proxy confirms it, then what serves nobody any more drains, and only then does it stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from rollouts.arms import Arms, state
from rollouts.errors import FleetError, NotPossible
from rollouts.local.routes import routes
from rollouts.local.supervisor import RestartSupervisor
from rollouts.model import Engine, RegionState, Role
from rollouts.ports import EngineRunner, Proxy, RunningEngine
from rollouts.starting import CancellableStart
from tidegate.core.clock import Clock
from tidegate.core.files import replace_file

DRAIN_SECONDS = 60.0
"""How long streams in flight may take before their engine stops all the same."""

DRAIN_POLL_SECONDS = 0.1

STOP_DRAIN_SECONDS = 5.0
"""As `DRAIN_SECONDS`, when the whole fleet ends and somebody waits at the terminal."""

log = logging.getLogger(__name__)


class LocalRegion:
    """A `Fleet` of processes on this machine."""

    def __init__(
        self, region: str, *, proxy: Proxy, engines: EngineRunner, clock: Clock, kept: Path | None = None
    ) -> None:
        """`proxy` is open already, with nothing behind it; `kept` is where the way back is noted, None for nowhere."""
        self.region = region
        self._kept = kept
        self._before = _noted(kept)
        """What served before the delivery that is open here; None while none is."""
        self._returning = False
        """Whether what starts is the way back, which is no trial."""
        self._proxy = proxy
        self._engines = engines
        self._clock = clock
        self._arms: Arms[RunningEngine] = Arms()
        self._operation = asyncio.Lock()
        """Held while an operation runs: one at a time, up to minutes."""
        self._change = asyncio.Lock()
        """Held while the arms and the routes change: milliseconds."""
        self._start: CancellableStart[RunningEngine] = CancellableStart()
        self._supervisor = RestartSupervisor(engines, clock)
        self._met: list[RunningEngine] = []
        """The engines here that users have been sent to: their streams may be open."""
        self._taken_away = ""
        """Why the last trial was ended here; empty when it was not, and once another one begins."""

    @property
    def on_trial(self) -> bool:
        """Whether a canary is up or coming up."""
        starting = self._start.under_way and self._arms.stable is not None
        return not self._returning and (self._arms.canary is not None or starting)

    @property
    def service(self) -> str | None:
        """What users ask the region for, as the field `model` of their requests; None before its first engine."""
        return self._arms.stable.engine.model if self._arms.stable else None

    async def observe(self) -> RegionState:
        seen = state(self.region, self._arms, entry=self._proxy.entry, proxy_alive=self._proxy.alive)
        return seen.model_copy(update={"taken_away": self._taken_away})

    async def deploy(self, engine: Engine) -> RegionState:
        async with self._operation:
            if not self._arms.serves(engine):
                self._note_way_back(engine)
                await self._bring_up(engine)
            return await self.observe()

    async def mirror(self, percent: int) -> RegionState:
        async with self._operation:
            await self._become(lambda arms: arms.mirrored(percent=percent))
            return await self.observe()

    async def shift(self, weight: int) -> RegionState:
        async with self._operation:
            await self._become(lambda arms: arms.shifted(weight=weight))
            return await self.observe()

    async def promote(self) -> RegionState:
        async with self._operation:
            await self._become(Arms.promoted)
            return await self.observe()

    async def rollback(self, to: str | None) -> RegionState:
        # Before the lock: a deploy holds it for as long as its engine takes to start.
        self._start.cancel()
        async with self._operation:
            await self._become(lambda arms: arms.rolled_back(to))
            stable = self._arms.stable
            # A region that was promoted stays so where only its trial is taken away.
            if to is not None or (self._before and stable and stable.engine.version == self._before.version):
                self._note(None)
            return await self.observe()

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
        self._start.cancel()
        async with self._operation:
            engine = self._before
            if engine is None or engine.version != version:
                raise NotPossible(
                    f"nothing of version {version} is kept here",
                    hint="start it by what MLflow keeps: `tidegate rollback --to VERSION --start`",
                )
            self._returning = True
            try:
                await self._bring_up(engine)
                await self._become(Arms.promoted)
            finally:
                self._returning = False
            self._note(None)
            return await self.observe()

    async def end_trial(self, why: str) -> RegionState:
        """All users on the stable: nobody carries the trial any more. `why` is told until another one begins.

        Raises:
            FleetError: it could not be done; it may be repeated.
        """
        stable, canary = self._arms.stable, self._arms.canary
        if stable is None:
            return await self.observe()
        what = f"version {canary.engine.version}" if canary else "a version that was starting"
        # First: the one who finds the canary gone finds out why.
        self._taken_away = f"{what} was taken back here at {self._clock.now():%H:%M:%S} UTC: {why}"
        return await self.rollback(stable.engine.version)

    async def stop(self) -> None:
        """Let streams in flight end for a few seconds, then leave nothing running."""
        self._start.cancel()
        async with self._operation, self._change:
            # First of all: it would start again what is stopped below.
            await self._supervisor.stop()
            left, self._arms = self._arms, Arms()
            await asyncio.gather(*(self._drained(running, STOP_DRAIN_SECONDS) for _, running in left))
            await self._proxy.stop()
            await asyncio.gather(*(running.stop() for _, running in left))

    async def reconcile(self) -> None:
        """Restart what died, and take users off a dead canary; called by the host in a loop."""
        async with self._change:
            if not self._proxy.alive:
                log.warning("%s: the proxy died; starting it again", self.region)
                await self._proxy.restart()
            self._arms = await self._supervisor.reconcile(self._arms)
            await self._proxy.prune()
        canary = self._arms.canary
        if canary and not canary.alive and (self._arms.weight or self._arms.mirror):
            log.warning("%s: the canary, version %s, died; users are on the stable", self.region, canary.engine.version)
            # It stays visible without traffic, so that the one who delivers learns why.
            await self._become(lambda arms: arms.shifted(weight=0).mirrored(percent=0))

    async def _bring_up(self, engine: Engine) -> None:
        """First in an empty region, again from the warm previous, or as a new canary."""
        self._taken_away = ""
        if self._arms.reusing(engine):
            await self._become(lambda arms: arms.reusing(engine) or arms)
            return
        if self._arms.stable is not None:
            await self._become(Arms.making_room)
        running = await self._start.run(engine.version, self._start_engine(engine))
        await self._become(lambda arms: arms.started(running))

    def _note_way_back(self, engine: Engine) -> None:
        """What serves now, unless `engine` is what a delivery that was left half done goes back to."""
        stable = self._arms.stable.engine if self._arms.stable else None
        if stable and engine.version not in {stable.version, (self._before or stable).version}:
            self._note(stable)

    def _note(self, before: Engine | None) -> None:
        self._before = before
        if self._kept is not None and before is not None:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._kept, before.model_dump_json(indent=1))
        elif self._kept is not None:
            self._kept.unlink(missing_ok=True)

    async def _start_engine(self, engine: Engine) -> RunningEngine:
        return await self._engines.start(engine)

    async def _become(self, change: Callable[[Arms[RunningEngine]], Arms[RunningEngine]]) -> None:
        """Routes first and confirmed; then every engine without a role drains and stops, if users have met it."""
        begun = self._clock.monotonic()
        async with self._change:
            before, after = self._arms, change(self._arms)
            # Before the routes change: who comes meanwhile counts.
            met = self._met = [*self._met, *_with_users(before), *_with_users(after)]
            await self._proxy.swap(routes(after))
            self._arms = after
            self._met = [running for _, running in after if running in met]
        log.info("%s: %s in %.1f ms", self.region, _summary(after), (self._clock.monotonic() - begun) * 1000)
        # Outside the lock: a drain takes up to a minute, and reconciling must go on.
        kept = [running for _, running in after]
        gone = [running for _, running in before if running not in kept]
        await asyncio.gather(*(self._retire(running) if running in met else running.abandon() for running in gone))

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


def _noted(kept: Path | None) -> Engine | None:
    """As an earlier host of the same delivery left it."""
    if kept is None or not kept.exists():
        return None
    try:
        return Engine.model_validate_json(kept.read_bytes())
    except (OSError, ValidationError) as error:
        log.warning("%s is no note of a way back, and is left alone: %s", kept, error)
        return None


def _with_users(arms: Arms[RunningEngine]) -> list[RunningEngine]:
    """Engines that users are sent to; a canary without weight answers copies and probes, for which nobody waits."""
    return [running for role, running in arms if role is not Role.CANARY or arms.weight]


def _summary(arms: Arms[RunningEngine]) -> str:
    serving = ", ".join(f"{role} {running.engine.version}" for role, running in arms) or "empty"
    return f"{serving}; weight {arms.weight} %, mirror {arms.mirror} %"
