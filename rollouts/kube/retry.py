"""When a request or an operation may be sent again, after how long, and until when.

A write is sent again only when nothing can have been done: the connection never came about, or the server said 429
before it looked at the request. A write that was sent and not answered may have been done: its caller reads before it
decides. A conflict is the caller's too, who must read what somebody else wrote. Above single requests, a whole
operation is idempotent and is repeated.

All of them retry by one `RetryPolicy`, and an operation has one `deadline`: whatever waits or retries below it, down to
the HTTP client, ends by then.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from rollouts.errors import (
    ApiError,
    Conflict,
    FleetError,
    Invalid,
    NoConnection,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from tidegate.core.clock import Clock


@dataclass(frozen=True)
class Backoff:
    """Pauses that double from one failure to the next, each shortened by chance so that not all come back at once."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def pause(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` in a row, at least 1; `chance` is from 0 up to 1."""
        whole = min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, 30))
        return whole * (1 + chance) / 2


BACKOFF = Backoff()
URGENT = Backoff(first_seconds=0.05, most_seconds=5.0)
"""On the way back."""


def may_repeat(error: FleetError, *, changes_nothing: bool) -> bool:
    """Whether the same request may be sent again after `error`."""
    if isinstance(error, NoConnection | TooManyRequests):
        return True
    # 5xx says that the server failed at it, not how far it came.
    return changes_nothing and (isinstance(error, Unreachable) or _server_failed(error))


ANSWERING_SECONDS = 60.0
"""An attempt that lasted this long reached the server: a failure after it starts a new outage."""

Result = TypeVar("Result")


def is_transient(error: FleetError) -> bool:
    """Whether the same operation may succeed later. A credential may expire while its successor is on its way."""
    passing = isinstance(error, Unreachable | Conflict | TooManyRequests | Unauthorized)
    return passing or _server_failed(error)


def _server_failed(error: FleetError) -> bool:
    """Whether it is the server's fault; an apply that fits no schema is answered with 500 too, and is the sender's."""
    return isinstance(error, ApiError) and error.status >= 500 and not isinstance(error, Invalid)


# Not an argument: it would have to pass through every method of `KubeClient`, and tasks inherit it.
_DEADLINE: ContextVar[tuple[Clock, float] | None] = ContextVar("deadline", default=None)


@contextmanager
def deadline(clock: Clock, seconds: float) -> Iterator[None]:
    """Nothing in this block waits or retries for longer, nor past the deadline of a block around it."""
    if time_left() <= seconds:
        yield
        return
    token = _DEADLINE.set((clock, clock.monotonic() + seconds))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def time_left() -> float:
    """Seconds until the operation's deadline; infinite outside of one."""
    if (current := _DEADLINE.get()) is None:
        return math.inf
    clock, ends = current
    return ends - clock.monotonic()


_URGENT: ContextVar[bool] = ContextVar("urgent", default=False)


@contextmanager
def urgent() -> Iterator[None]:
    """In this block failures are retried after short pauses, also where the server asks for longer ones.

    One request that the server refuses costs it nothing, and users wait for it.
    """
    token = _URGENT.set(True)
    try:
        yield
    finally:
        _URGENT.reset(token)


@dataclass(frozen=True)
class RetryPolicy:
    """How failures of one region's API server are retried."""

    clock: Clock
    _: KW_ONLY
    seconds: float
    """How long failures may go on in a row."""
    within: float = math.inf
    """How long a whole operation may take."""
    backoff: Backoff = BACKOFF
    chance: Callable[[], float] = lambda: 1.0
    """Shortens pauses, see `Backoff.pause`."""

    async def run(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        """What the operation returns, once it succeeds. It is idempotent: it states what shall hold in the end.

        A region that does not answer goes on serving, and its own guard watches it; so a delivery waits for it.

        Raises:
            FleetError: the last one, when it is not transient or lasted too long.
        """
        attempts = Attempts(self)
        with deadline(self.clock, self.within):
            while True:
                try:
                    return await operation()
                except FleetError as error:
                    if not (is_transient(error) and await attempts.pause(error)):
                        raise


class Attempts:
    """The attempts at one thing from now on, by a policy: pauses between them, or says that it is over."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy, self._failures = policy, 0
        self._first = self._since = self._began = policy.clock.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the first one began."""
        return self._policy.clock.monotonic() - self._first

    async def pause(self, error: FleetError | None = None) -> bool:
        """Return true when the next attempt may begin, at once false when there is no time for one.

        The last attempt begins when the time is over, however long the pause before it would have been. A server that
        asks for a longer pause in its `error` (`Retry-After`) gets it.
        """
        least_seconds = (error.retry_after_seconds or 0.0) if isinstance(error, ApiError) else 0.0
        policy, now = self._policy, self._policy.clock.monotonic()
        if now - self._began > ANSWERING_SECONDS:
            self._since, self._failures = now, 0
        self._failures += 1
        left = min(self._since + policy.seconds - now, time_left())
        backoff = policy.backoff
        if _URGENT.get():
            backoff, least_seconds = URGENT, 0.0
        if left <= 0 or least_seconds > left:
            return False
        pause = backoff.pause(self._failures, policy.chance())
        await policy.clock.sleep(min(max(pause, least_seconds), left))
        self._began = policy.clock.monotonic()
        return True
