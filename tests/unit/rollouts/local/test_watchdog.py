"""Whether a delivery runs is what the kernel says about its lock, not what a file says."""

from __future__ import annotations

import fcntl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rollouts.local.watchdog import LEASE, LOCK, delivery_runs, end_lease, holder, lend


def test_a_held_lock_is_a_delivery_and_looking_does_not_take_it(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert delivery_runs(tmp_path)
        assert delivery_runs(tmp_path)
    assert not delivery_runs(tmp_path)
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lease_stands_for_a_process_that_will_come_until_it_runs_out(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    lend(tmp_path, now + timedelta(minutes=1))
    assert delivery_runs(tmp_path)
    lend(tmp_path, now - timedelta(seconds=1))
    assert not delivery_runs(tmp_path)


def test_a_lease_ends_with_its_delivery_and_saying_so_twice_is_no_error(tmp_path: Path) -> None:
    lend(tmp_path, datetime.now(UTC) + timedelta(minutes=1))
    end_lease(tmp_path)
    end_lease(tmp_path)
    assert not delivery_runs(tmp_path)


def test_a_lease_that_nobody_can_read_is_none(tmp_path: Path) -> None:
    (tmp_path / LEASE).write_text("soon")
    assert not delivery_runs(tmp_path)


def test_no_matter_who_holds_the_lock_is_known_by_what_it_wrote_and_only_while_it_holds_it(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder(tmp_path) is None
        file.write("4711")
        file.flush()
        assert holder(tmp_path) == 4711
    assert holder(tmp_path) is None
