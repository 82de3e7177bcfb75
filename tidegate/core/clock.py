"""Time as a port, so that a delivery of hours is tested in milliseconds; and whether another machine is silent."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from enum import Enum
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """The wall clock, in UTC: for records and for asking Prometheus."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards: for deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


WATCH_SECONDS = 30.0
"""Three beats: whoever delivers gives a sign of life every 10 s."""


class Life(Enum):
    """What is known of somebody who gives signs of life."""

    ALIVE = "alive"
    UNCLEAR = "unclear"
    """The last sign is far from now, by a clock that may differ from its sender's, and was not watched long enough."""
    DEAD = "dead"


class Watch:
    """The last sign of life of each sender, and since when it was seen without a gap between two looks.

    A sign has the time of its sender's clock, and clocks of two machines differ. So one look proves nothing. A sign is
    watched, by the own clock that only goes on: one that was seen to change is of somebody who lives, and one that
    looks old counts as the last when it is still the same after three beats of a sender that lives.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[object, bool, float, float]] = {}

    def sees(self, sender: str, sign: object, monotonic: float) -> tuple[float, bool]:
        """Note a look; returns for how many seconds the sign was seen unchanged by now, and whether it once changed."""
        before, changed, since, last = self._seen.get(sender, (sign, False, monotonic, monotonic))
        if sign != before:
            changed, since = True, monotonic
        elif monotonic - last > WATCH_SECONDS:
            changed, since = False, monotonic
        self._seen[sender] = (sign, changed, since, monotonic)
        return monotonic - since, changed

    def life(self, sender: str, heard: datetime, *, now: datetime, monotonic: float, allowed: float) -> Life:
        """Note a look at a sign of that time; `allowed` is how many seconds somebody who lives may be silent."""
        watched, changed = self.sees(sender, heard, monotonic)
        if watched >= max(allowed, WATCH_SECONDS):
            return Life.DEAD
        if changed or abs((now - heard).total_seconds()) < allowed:
            return Life.ALIVE
        return Life.DEAD if watched >= WATCH_SECONDS else Life.UNCLEAR
