"""Who carries a delivery on this machine, and what its silence comes to: by the host's own clock."""

from __future__ import annotations

from rollouts.local.watchdog import HeartbeatMonitor
from tidegate.testing import FakeClock


async def test_silence_counts_from_the_last_sign_of_life() -> None:
    clock = FakeClock()
    heartbeat = HeartbeatMonitor(clock)
    assert (heartbeat.last, heartbeat.silence(4711)) == (None, "")
    for _ in range(3):
        heartbeat.record("ci-7 (process 4711)", 900.0, process=4711)
        await clock.sleep(900)
        assert heartbeat.silence(4711) == ""
    await clock.sleep(1)
    assert heartbeat.silence(4711) == "nothing was heard of ci-7 (process 4711) for 15m"
    assert heartbeat.last is not None
    assert heartbeat.last.heard is not None and (clock.now() - heartbeat.last.heard).total_seconds() == 901


async def test_who_comes_back_is_there_again_and_who_ends_is_nobody() -> None:
    clock = FakeClock()
    heartbeat = HeartbeatMonitor(clock)
    heartbeat.record("ci-7 (process 4711)", 10.0, process=4711)
    await clock.sleep(60)
    heartbeat.record("ci-7 (process 4711)", 10.0, process=4711)
    assert heartbeat.silence(4711) == ""
    await clock.sleep(60)
    heartbeat.clear()
    assert (heartbeat.last, heartbeat.silence(4711)) == (None, "")


async def test_the_silence_of_one_process_says_nothing_about_the_next() -> None:
    clock = FakeClock()
    heartbeat = HeartbeatMonitor(clock)
    heartbeat.record("ci-7 (process 4711)", 10.0, process=4711)
    await clock.sleep(60)
    assert (heartbeat.silence(4712), heartbeat.silence(None)) == ("", "")
