"""When to ask again, and after how long.

A write is said again only when nothing can have been done: the connection never came about, or the server said 429
before it looked at the request. A write that was sent and not answered may have been done: its caller reads before it
decides. A conflict is the caller's too, who must read what somebody else wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.errors import ApiError, FleetError, Invalid, NoConnection, TooManyRequests, Unreachable


@dataclass(frozen=True)
class Backoff:
    """Pauses that double from one failure to the next, each shortened by chance so that not all come back at once."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def pause(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` in a row, at least 1; `chance` is from 0 up to 1."""
        whole = min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, 30))
        return whole * (1 + chance) / 2


def may_repeat(error: FleetError, *, changes_nothing: bool) -> bool:
    """Whether the same request may be sent again after `error`."""
    if isinstance(error, NoConnection | TooManyRequests):
        return True
    # 5xx says that the server failed at it, not how far it came.
    failed = isinstance(error, ApiError) and error.status >= 500 and not isinstance(error, Invalid)
    return changes_nothing and (isinstance(error, Unreachable) or failed)


def asked_pause(error: FleetError | None) -> float:
    """Seconds that the server asked for (`Retry-After`); 0 when it did not."""
    return (error.retry_after_seconds or 0.0) if isinstance(error, ApiError) else 0.0
