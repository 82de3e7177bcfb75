"""Whether a delivery runs is what the kernel says about its lock, not what a file says."""

from __future__ import annotations

import fcntl
from pathlib import Path

from rollouts.watchdog import LOCK, delivery_runs


def test_without_a_lock_file_no_delivery_runs(tmp_path: Path) -> None:
    assert not delivery_runs(tmp_path)


def test_a_file_that_nobody_locks_is_a_delivery_that_is_over(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("4711")
    assert not delivery_runs(tmp_path)


def test_a_held_lock_is_a_delivery_and_looking_does_not_take_it(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert delivery_runs(tmp_path)
        assert delivery_runs(tmp_path)
    assert not delivery_runs(tmp_path)
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
