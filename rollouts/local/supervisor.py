"""The restart supervisor: starts a dead stable or warm previous engine again, with a growing wait between attempts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass

from rollouts.ports import EngineRunner, RunningEngine
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

FIRST_WAIT_SECONDS = 1.0
"""After the first attempt that failed; the attempt itself comes at once."""

LONGEST_WAIT_SECONDS = 30.0
"""The wait doubles up to this: an engine that cannot start must not take the cores of those that serve."""

log = logging.getLogger(__name__)


@dataclass
class _Attempt:
    """The effort for one dead engine."""

    dead: RunningEngine
    not_before: float
    """On the monotonic clock."""
    wait_seconds: float = FIRST_WAIT_SECONDS
    task: asyncio.Task[RunningEngine] | None = None


class RestartSupervisor:
    """Restarts engines at their old port, each time after twice the wait."""

    def __init__(self, engines: EngineRunner, clock: Clock) -> None:
        self._engines = engines
        self._clock = clock
        self._attempts: dict[str, _Attempt] = {}
        """By version."""

    async def reconcile(self, running: dict[str, RunningEngine], wanted: Collection[str]) -> None:
        """Begin, or finish, what the dead of the `wanted` versions need; who came back takes its place in `running`."""
        for version in wanted:
            if (there := running.get(version)) and not there.alive:
                await self._reconcile_one(running, version, there)
        for version, attempt in list(self._attempts.items()):
            if version not in wanted or running.get(version) is not attempt.dead:
                await self._drop(version)

    async def stop(self) -> None:
        """Give up on everything."""
        for version in list(self._attempts):
            await self._drop(version)

    async def _reconcile_one(self, running: dict[str, RunningEngine], version: str, dead: RunningEngine) -> None:
        attempt = self._attempts.get(version)
        # Another engine than last time died: begin again, with no wait.
        if attempt is None or attempt.dead is not dead:
            await self._drop(version)
            # Its process is gone; this ends what is left of its group and gives its memory back.
            await dead.stop()
            attempt = self._attempts[version] = _Attempt(dead, self._clock.monotonic())
            log.warning("version %s died:\n%s", version, dead.tail())
        if attempt.task is None and self._clock.monotonic() >= attempt.not_before:
            attempt.task = asyncio.create_task(self._engines.start(dead.engine, port=dead.port))
        if attempt.task is None or not attempt.task.done():
            return
        try:
            running[version] = attempt.task.result()
            del self._attempts[version]
        except TidegateError as error:
            log.warning("version %s does not come back: %s", version, error)
            attempt.task = None
            attempt.not_before = self._clock.monotonic() + attempt.wait_seconds
            attempt.wait_seconds = min(2 * attempt.wait_seconds, LONGEST_WAIT_SECONDS)

    async def _drop(self, version: str) -> None:
        """Stop what was started for an engine that nobody waits for any more."""
        attempt = self._attempts.pop(version, None)
        if attempt is None or attempt.task is None:
            return
        attempt.task.cancel()
        (outcome,) = await asyncio.gather(attempt.task, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.stop()
