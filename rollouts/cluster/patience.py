"""How long a wish is said again to a region that is away, busy, or being changed by somebody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rollouts.errors import ApiError, Conflict, FleetError, Gone, Invalid, TooManyRequests, Unauthorized, Unreachable
from tidegate.core.clock import Clock

FIRST_SECONDS, LONGEST_SECONDS = 0.5, 20.0
"""Between two attempts: twice as long each time, up to the longest."""

ANSWERING_SECONDS = 60.0
"""A wish that got so far was heard: what comes then is a new silence."""

Said = TypeVar("Said")


def passes(error: FleetError) -> bool:
    """Whether the same wish may succeed later. A credential may have run out while its successor was on its way."""
    busy = isinstance(error, ApiError) and error.status >= 500 and not isinstance(error, Invalid)
    return busy or isinstance(error, Unreachable | Conflict | Gone | TooManyRequests | Unauthorized)


class Patience:
    """Says wishes of one region again. That is right because each of them states what shall hold in the end.

    A region that is silent serves what it served, and its own analysis guards it; so a delivery waits for it.
    """

    def __init__(self, clock: Clock, *, seconds: float) -> None:
        """`seconds` is how long a region may be silent, or refuse what should be possible, until a wish is given up."""
        self._clock = clock
        self._seconds = seconds

    async def keep(self, wish: Callable[[], Awaitable[Said]]) -> Said:
        """What the wish returns, once it holds.

        Raises:
            FleetError: what it raised last, when that does not pass, or did not pass in time.
        """
        since: float | None = None
        pause = FIRST_SECONDS
        while True:
            said = self._clock.monotonic()
            try:
                return await wish()
            except FleetError as error:
                now = self._clock.monotonic()
                if since is None or now - said > ANSWERING_SECONDS:
                    since, pause = now, FIRST_SECONDS
                if not passes(error) or now - since >= self._seconds:
                    raise
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)
