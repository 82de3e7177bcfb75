"""Notices that the process behind a delivery is gone: its lock on `delivery.lock` is free.

The kernel releases a file lock when its holder ends in any way, kill -9 included. A delivery that many processes
carry one after the other holds no lock between two of them; it leaves a lease, which each of them renews.
"""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path

LOCK = "delivery.lock"
"""Below the state folder."""
LEASE = "delivery.lease"
"""Beside the lock: until when, in ISO 8601."""


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


def lend(state: Path, until: datetime) -> None:
    """Let a canary stay until then, though no process may hold the lock."""
    state.mkdir(parents=True, exist_ok=True)
    fresh = state / f"{LEASE}.{os.getpid()}"
    fresh.write_text(until.isoformat(), encoding="ascii")
    # In one go: half a moment would look like none.
    fresh.replace(state / LEASE)


def end_lease(state: Path) -> None:
    """The delivery that left it is over; also right when there is none."""
    (state / LEASE).unlink(missing_ok=True)


def is_leased(state: Path) -> bool:
    """Whether the next process of a delivery may still come."""
    try:
        return datetime.fromisoformat((state / LEASE).read_text(encoding="ascii")) > datetime.now(UTC)
    except (FileNotFoundError, ValueError):
        return False


def delivery_runs(state: Path) -> bool:
    """Whether a process holds the delivery lock of this state folder now, or will come back to its canary."""
    return is_locked(state / LOCK) or is_leased(state)
