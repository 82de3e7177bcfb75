"""Time passes in order, at once, and only while everybody waits."""

from __future__ import annotations

import asyncio

import pytest
from fakes.clock import SimulatedTime


@pytest.fixture
def time() -> SimulatedTime:
    return SimulatedTime()


def test_who_is_due_is_called_in_order_of_time_then_of_asking(time: SimulatedTime) -> None:
    called: list[tuple[str, float]] = []
    for seconds, name in ((20, "c"), (10, "a"), (10, "b"), (99, "never")):
        time.call_later(seconds, lambda name=name: called.append((name, time.monotonic())))
    time.advance(30)
    assert called == [("a", 10), ("b", 10), ("c", 20)]
    assert time.monotonic() == 30


def test_who_was_cancelled_is_not_called(time: SimulatedTime) -> None:
    called: list[int] = []
    cancel = time.call_later(10, lambda: called.append(1))
    cancel()
    time.advance(20)
    assert called == []


def test_a_call_may_ask_for_another(time: SimulatedTime) -> None:
    called: list[float] = []

    def again() -> None:
        called.append(time.monotonic())
        time.call_later(10, again)

    time.call_later(10, again)
    time.advance(35)
    assert called == [10, 20, 30]


async def test_nobody_oversleeps_what_another_does_meanwhile(time: SimulatedTime) -> None:
    seen: list[tuple[str, float]] = []

    async def work(name: str, *naps: float) -> None:
        for nap in naps:
            await time.sleep(nap)
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append((name, time.monotonic()))

    await asyncio.gather(work("slow", 30, 30), work("fast", 20, 20, 25))
    assert seen == [("fast", 20), ("slow", 30), ("fast", 40), ("slow", 60), ("fast", 65)]


async def test_time_passes_while_somebody_waits_for_an_event(time: SimulatedTime) -> None:
    happened = asyncio.Event()
    time.call_later(3600, happened.set)
    await time.until(happened)
    assert time.monotonic() == 3600


async def test_it_stands_still_while_nobody_waits(time: SimulatedTime) -> None:
    time.call_later(1, lambda: None)
    for _ in range(200):
        await asyncio.sleep(0)
    assert time.monotonic() == 0
