"""The clock port: the machine's, and the tests' own."""

from __future__ import annotations

from datetime import UTC

from tidegate.core.clock import Clock, SystemClock
from tidegate.testing import START, FakeClock


async def test_the_system_clock_moves_on_by_itself_and_speaks_utc() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert clock.now().tzinfo is UTC


async def test_the_fake_clock_moves_only_when_somebody_sleeps() -> None:
    clock: Clock = FakeClock()
    assert clock.now() == START
    await clock.sleep(3600)
    assert (clock.now() - START).total_seconds() == clock.monotonic() == 3600
