"""The lock that makes a delivery the only one on its machine, and tells the fleet host that it lives."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from registry.errors import DeliveryRuns
from rollouts.local.locks import holder
from tidegate.core.files import is_locked, lock_open_file

ROLLBACK = "rollback.lock"
"""Below the state folder; held by a rollback from the moment when users are back."""
PATIENCE_SECONDS = 1.0
"""The fleet host tries the lock for a moment now and then; that must not look like a delivery."""
POLL_SECONDS = 0.05


@contextmanager
def delivery_lock(path: Path) -> Iterator[None]:
    """Hold the lock for the length of a `with`; the kernel lets go when the process dies, however it dies.

    Raises:
        DeliveryRuns: when another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="ascii") as file:
        if not lock_open_file(file, seconds=PATIENCE_SECONDS):
            raise _refusal(path)
        # The lock alone says that a delivery runs; the content says whom to signal in order to stop it.
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def refuse_second(path: Path) -> None:
    """Look whether a delivery runs here, without taking the lock.

    Raises:
        DeliveryRuns: another process holds it.
    """
    if is_locked(path):
        raise _refusal(path)


@asynccontextmanager
async def one_rollback(state: Path, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Let rollbacks of this machine go one after the other: the second finds done what the first did.

    Where nothing can be written there is no lock, and no second one could do harm either: every operation to a region
    is a compare-and-set.
    """
    path = state / ROLLBACK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError:
        yield
        return
    with file:
        if is_locked(path):
            tell("another rollback runs here; waiting for it")
        # Not by waiting in the kernel: the other one, or the delivery that it ends, may need this event loop.
        while not lock_open_file(file):
            await asyncio.sleep(POLL_SECONDS)
        yield


def rollback_runs(state: Path) -> bool:
    """Whether a rollback is on its way here: then the one who holds the delivery's lock may be that."""
    return is_locked(state / ROLLBACK)


def _refusal(path: Path) -> DeliveryRuns:
    owner = holder(path)
    return DeliveryRuns(
        f"another delivery runs here (process {owner})" if owner else "another delivery runs here",
        hint="see `tidegate status`, wait for it, or roll it back with `tidegate rollback`",
    )
