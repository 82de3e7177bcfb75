"""The restart supervisor: starts a dead stable or warm previous engine again, with a growing wait between attempts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from rollouts.arms import Arms
from rollouts.model import Role
from rollouts.ports import EngineRunner, RunningEngine
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError

FIRST_WAIT_SECONDS = 1.0
"""After the first attempt that failed; the attempt itself comes at once."""

LONGEST_WAIT_SECONDS = 30.0
"""The wait doubles up to this: an engine that cannot start must not take the cores of those that serve."""

log = logging.getLogger(__name__)

LocalArms = Arms[RunningEngine]


@dataclass
class _Attempt:
    """The effort for one dead engine."""

    dead: RunningEngine
    not_before: float
    """On the monotonic clock."""
    wait_seconds: float = FIRST_WAIT_SECONDS
    task: asyncio.Task[RunningEngine] | None = None


class RestartSupervisor:
    """Restarts engines at their old port, each time after twice the wait. A canary stays dead: it is on trial."""

    def __init__(self, engines: EngineRunner, clock: Clock) -> None:
        self._engines = engines
        self._clock = clock
        self._attempts: dict[Role, _Attempt] = {}

    async def reconcile(self, arms: LocalArms) -> LocalArms:
        """Begin, or finish, what the dead among `arms` need; returns the arms with who came back."""
        for role, running in arms:
            if role is not Role.CANARY and not running.alive:
                arms = await self._reconcile_one(arms, role, running)
        for role in [role for role, attempt in self._attempts.items() if not _is_current(arms, role, attempt)]:
            await self._drop(role)
        return arms

    async def stop(self) -> None:
        """Give up on everything."""
        for role in list(self._attempts):
            await self._drop(role)

    async def _reconcile_one(self, arms: LocalArms, role: Role, dead: RunningEngine) -> LocalArms:
        attempt = self._attempts.get(role)
        # Another engine than last time died in this role: begin again, with no wait.
        if attempt is None or attempt.dead is not dead:
            await self._drop(role)
            # Its process is gone; this ends what is left of its group and gives its memory back.
            await dead.stop()
            attempt = self._attempts[role] = _Attempt(dead, self._clock.monotonic())
            log.warning("%s version %s died:\n%s", role, dead.engine.version, dead.tail())
        if attempt.task is None and self._clock.monotonic() >= attempt.not_before:
            attempt.task = asyncio.create_task(self._engines.start(dead.engine, port=dead.port))
        if attempt.task is not None and attempt.task.done():
            return self._finish(arms, role, attempt, attempt.task)
        return arms

    def _finish(self, arms: LocalArms, role: Role, attempt: _Attempt, task: asyncio.Task[RunningEngine]) -> LocalArms:
        try:
            back = task.result()
        except TidegateError as error:
            log.warning("%s does not come back: %s", role, error)
            attempt.task = None
            attempt.not_before = self._clock.monotonic() + attempt.wait_seconds
            attempt.wait_seconds = min(2 * attempt.wait_seconds, LONGEST_WAIT_SECONDS)
            return arms
        del self._attempts[role]
        changed: dict[str, RunningEngine] = {str(role): back}
        return replace(arms, **changed)  # type: ignore[arg-type]

    async def _drop(self, role: Role) -> None:
        """Stop what was started for an engine that nobody waits for any more."""
        attempt = self._attempts.pop(role, None)
        if attempt is None or attempt.task is None:
            return
        attempt.task.cancel()
        (outcome,) = await asyncio.gather(attempt.task, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.stop()


def _is_current(arms: LocalArms, role: Role, attempt: _Attempt) -> bool:
    return getattr(arms, role) is attempt.dead
