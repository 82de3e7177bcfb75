"""Notices that the process behind a delivery is gone: its lock on `delivery.lock` is free.

The kernel releases a file lock when its holder ends in any way, kill -9 included.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

LOCK = "delivery.lock"
"""Below the state folder."""


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of the file at `path` now; a file that is not there is held by nobody."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        # Closing the file gives the lock back at once.
        return False


def delivery_runs(state: Path) -> bool:
    """Whether a process holds the delivery lock of this state folder now."""
    return is_locked(state / LOCK)
