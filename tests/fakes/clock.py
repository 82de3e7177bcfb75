"""Time that passes only when somebody sleeps."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A `Clock` whose sleeps return at once and move it on."""

    def __init__(self) -> None:
        self.elapsed = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    async def sleep(self, seconds: float) -> None:
        self.elapsed += seconds
        await asyncio.sleep(0)


class LedClock(FakeClock):
    """Time that passes only when the task that made the clock sleeps; who sleeps beside it is woken in its order.

    For a stage that reads its evidence in threads: whatever runs beside it must not spend the stage's time meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self._leader = asyncio.current_task()
        self._beside: list[tuple[float, int, asyncio.Event]] = []
        self._came = itertools.count()

    async def sleep(self, seconds: float) -> None:
        until = self.elapsed + seconds
        if asyncio.current_task() is not self._leader:
            woken = asyncio.Event()
            heapq.heappush(self._beside, (until, next(self._came), woken))
            await woken.wait()
            return
        while self._beside and self._beside[0][0] <= until:
            at, _, woken = heapq.heappop(self._beside)
            self.elapsed = max(self.elapsed, at)
            woken.set()
            # What it does then takes no time, but turns of the loop.
            for _ in range(20):
                await asyncio.sleep(0)
        self.elapsed = until
        await asyncio.sleep(0)
