"""Time in tests: it passes only when somebody sleeps, or at once whenever everybody waits."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from tidegate.testing import START, FakeClock


def sleep_of(clock: FakeClock) -> Callable[[float], None]:
    """As `time.sleep`, by that clock."""

    def sleep(seconds: float) -> None:
        clock.elapsed += seconds

    return sleep


class LedClock(FakeClock):
    """Time that passes only when the task that made the clock sleeps; who sleeps next to it is woken in its order.

    For a stage that reads its evidence in threads: whatever runs next to it must not spend the stage's time meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self._leader = asyncio.current_task()
        self._background: list[tuple[float, int, asyncio.Event]] = []
        self._came = itertools.count()

    async def sleep(self, seconds: float) -> None:
        until = self.elapsed + seconds
        if asyncio.current_task() is not self._leader:
            woken = asyncio.Event()
            heapq.heappush(self._background, (until, next(self._came), woken))
            await woken.wait()
            return
        while self._background and self._background[0][0] <= until:
            at, _, woken = heapq.heappop(self._background)
            self.elapsed = max(self.elapsed, at)
            woken.set()
            # What it does then takes no time, but turns of the loop.
            for _ in range(20):
                await asyncio.sleep(0)
        self.elapsed = until
        await asyncio.sleep(0)


_TURNS = 40
"""Turns of the event loop after which everybody is taken to wait: more than any request needs from call to answer."""

Cancel = Callable[[], None]


class Time(Protocol):
    """A `tidegate.core.clock.Clock` that can also call back: what a cluster and its controllers live by."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
    def call_later(self, seconds: float, callback: Callable[[], None]) -> Cancel:
        """Call it after `seconds`, unless cancelled before."""
        ...

    async def until(self, event: asyncio.Event) -> None:
        """Return once it is set, letting time pass meanwhile."""
        ...


@dataclass(order=True)
class _Timer:
    due: float
    ticket: int
    callback: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.callback = None


class SimulatedTime:
    """A clock without waiting: in order, to the next moment at which somebody wants to be called.

    In plain code `advance` moves it. In asynchronous code it moves while somebody sleeps or waits in it, and only
    when every other task waits too: two tasks that sleep 10 s at once are both awake after 10 s.
    """

    def __init__(self, *, alone: bool = False) -> None:
        """`alone`: neither threads nor sockets take part, so that the event loop itself tells who waits."""
        self._alone = alone
        self.elapsed = 0.0
        self._timers: list[_Timer] = []
        self._tickets = itertools.count()
        self._waiting = 0
        self._driver: asyncio.Task[None] | None = None

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Cancel:
        timer = _Timer(self.elapsed + max(seconds, 0.0), next(self._tickets), callback)
        heapq.heappush(self._timers, timer)
        self._drive_while_somebody_waits()
        return timer.cancel

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, calling the one who is due on the way."""
        end = self.elapsed + seconds
        while (due := self._next()) is not None and due <= end:
            self._fire()
        self.elapsed = max(self.elapsed, end)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        cancel = self.call_later(seconds, woken.set)
        try:
            await self.until(woken)
        finally:
            cancel()

    async def until(self, event: asyncio.Event) -> None:
        self._waiting += 1
        self._drive_while_somebody_waits()
        try:
            await event.wait()
        finally:
            self._waiting -= 1

    def _drive_while_somebody_waits(self) -> None:
        if self._waiting and (self._driver is None or self._driver.done()):
            self._driver = asyncio.get_running_loop().create_task(self._drive(), name="simulated time")

    async def _drive(self) -> None:
        while self._waiting and self._next() is not None:
            await self._everybody_waits()
            if self._waiting and self._next() is not None:
                self._fire()

    async def _everybody_waits(self) -> None:
        if self._alone:
            ready: Sized = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            while ready and self._waiting:
                await asyncio.sleep(0)
            return
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def _next(self) -> float | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0].due if self._timers else None

    def _fire(self) -> None:
        timer = heapq.heappop(self._timers)
        self.elapsed = max(self.elapsed, timer.due)
        if timer.callback is not None:
            timer.callback()


class RealTime:
    """The machine's own time, for a cluster behind a server; `speed` seconds pass in each.

    It calls back in the event loop in which it was asked to.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Cancel:
        return asyncio.get_running_loop().call_later(max(seconds, 0.0) / self._speed, callback).cancel

    async def until(self, event: asyncio.Event) -> None:
        await event.wait()
