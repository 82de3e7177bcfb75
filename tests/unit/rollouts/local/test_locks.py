"""The files of a fleet host, and who lives: what the kernel says about a lock, and what the host's clock of silence."""

from __future__ import annotations

import fcntl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.state import StateFolder
from rollouts.local.locks import LEASE, LOCK, HeartbeatMonitor, Layout, delivery_runs, end_lease, holder, lend
from tidegate.testing import FakeClock


def test_paths_are_absolute_because_processes_elsewhere_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    layout = Layout(Path(".tidegate"))
    monkeypatch.chdir("/")
    assert layout.record == tmp_path / ".tidegate" / "fleet" / "host.json"


def test_the_host_watches_the_lock_that_a_delivery_holds(tmp_path: Path) -> None:
    assert StateFolder(tmp_path).lock == tmp_path / LOCK


def test_a_held_lock_is_a_delivery_and_looking_does_not_take_it(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert delivery_runs(tmp_path)
        assert delivery_runs(tmp_path)
    assert not delivery_runs(tmp_path)
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lease_stands_for_a_process_that_will_come_until_it_runs_out_or_its_delivery_ends(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    for until, runs in ((now + timedelta(minutes=1), True), (now - timedelta(seconds=1), False)):
        lend(tmp_path, until)
        assert delivery_runs(tmp_path) is runs
    lend(tmp_path, now + timedelta(minutes=1))
    for _ in range(2):
        end_lease(tmp_path)
        assert not delivery_runs(tmp_path)
    (tmp_path / LEASE).write_text("soon")
    assert not delivery_runs(tmp_path), "one that nobody can read is none"


def test_no_matter_who_holds_the_lock_is_known_by_what_it_wrote_and_only_while_it_holds_it(tmp_path: Path) -> None:
    assert holder(tmp_path / LOCK) is None
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder(tmp_path / LOCK) is None
        file.write("4711")
        file.flush()
        assert holder(tmp_path / LOCK) == 4711
    assert holder(tmp_path / LOCK) is None


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


async def test_who_comes_back_is_there_again_and_nobodys_silence_is_anothers() -> None:
    clock = FakeClock()
    heartbeat = HeartbeatMonitor(clock)
    for _ in range(2):
        heartbeat.record("ci-7 (process 4711)", 10.0, process=4711)
        assert heartbeat.silence(4711) == ""
        await clock.sleep(60)
    assert (heartbeat.silence(4712), heartbeat.silence(None)) == ("", "")
    heartbeat.clear()
    assert (heartbeat.last, heartbeat.silence(4711)) == (None, "")
