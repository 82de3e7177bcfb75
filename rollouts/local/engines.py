"""Engines that run on this machine, and what starts a dead one again: the stable, or the warm previous."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from rollouts.model import Engine
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

FIRST_WAIT_SECONDS = 1.0
"""After the first attempt that failed; the attempt itself comes at once."""

LONGEST_WAIT_SECONDS = 30.0
"""The wait doubles up to this: an engine that cannot start must not take the cores of those that serve."""

log = logging.getLogger(__name__)


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
        ...

    def tail(self) -> str:
        """The last lines of its log."""
        ...

    async def busy(self) -> int:
        """How many requests it works on or holds in its queue; 0 when it is dead."""
        ...

    async def stop(self) -> None:
        """Ask it to end, wait, then make it. Also right for an engine that is dead already."""
        ...

    async def abandon(self) -> None:
        """End it at once: no user waits for an answer of it."""
        ...


class EngineRunner(Protocol):
    """Runs engines on this machine."""

    async def start(self, engine: Engine, *, port: int | None = None) -> RunningEngine:
        """Return once the engine answers as fast as it ever will; `port` when it must be a certain one.

        Raises:
            Refused: when the machine is too small; nothing was started.
            EngineDidNotStart: when it died or stayed unhealthy; nothing is left running.
        """
        ...


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
