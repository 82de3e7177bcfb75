"""The lock that makes a delivery the only one on its machine, and tells the fleet host that it lives."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry.errors import DeliveryRuns
from rollouts.watchdog import is_locked

PATIENCE_SECONDS = 1.0
"""The fleet host tries the lock for a moment now and then; that must not look like a delivery."""


@contextmanager
def delivery_lock(path: Path) -> Iterator[None]:
    """Hold the lock for the length of a `with`; the kernel lets go when the process dies, however it dies.

    Raises:
        DeliveryRuns: when another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="ascii") as file:
        _acquire(file.fileno(), path)
        # The lock alone says that a delivery runs; the content says whom to signal in order to stop it.
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _acquire(descriptor: int, path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _refusal(path) from None
            time.sleep(0.05)
        else:
            return


def _refusal(path: Path) -> DeliveryRuns:
    owner = holder(path)
    return DeliveryRuns(
        f"another delivery runs here (process {owner})" if owner else "another delivery runs here",
        hint="see `tidegate status`, wait for it, or take it back with `tidegate rollback`",
    )


def holder(path: Path) -> int | None:
    """The process that holds the lock; None when nobody does."""
    if not is_locked(path):
        return None
    text = path.read_text(encoding="ascii")
    return int(text) if text.isdigit() else None
