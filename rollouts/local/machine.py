"""The capacity of this machine, and whether one more engine fits. Checked before a start, or the kernel decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from rollouts.model import Engine
from tidegate.core.errors import Refused

GIB = 1 << 30

RESERVE_BYTES = GIB // 2
"""Left for proxies, Prometheus and the delivery itself."""


@dataclass
class Ticket:
    """An engine's place on the machine."""

    engine: Engine
    settled: bool = False
    """Its memory is taken, so that the machine's own numbers show it."""


class Admission:
    """Lets engines in one by one, so that two regions that start at once do not count the same memory."""

    def __init__(self, measure: Callable[[], int]) -> None:
        """`measure` is asked again for every engine: bytes that it can take without pushing others out."""
        self._measure = measure
        self._tickets: list[Ticket] = []

    def admit(self, engine: Engine) -> Ticket:
        """Reserve what `engine` needs.

        Raises:
            Refused: when it does not fit, with the numbers; nothing is reserved.
        """
        available = self._measure()
        # The others are in what the machine has left.
        starting = sum(ticket.engine.memory_bytes for ticket in self._tickets if not ticket.settled)
        free = available - starting - RESERVE_BYTES
        if engine.memory_bytes > free:
            raise Refused(
                f"version {engine.version} needs {_gib(engine.memory_bytes)} of memory and {_gib(max(free, 0))} are "
                "free",
                hint="stop something, or give the engine less memory",
                detail=f"available {_gib(available)}, promised to starting engines {_gib(starting)}, "
                f"kept in reserve {_gib(RESERVE_BYTES)}",
            )
        ticket = Ticket(engine)
        self._tickets.append(ticket)
        return ticket

    def release(self, ticket: Ticket) -> None:
        """Give the place back; a second time changes nothing."""
        self._tickets = [other for other in self._tickets if other is not ticket]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


CGROUP = Path("/sys/fs/cgroup")


def measure(cgroup: Path = CGROUP) -> int:
    """Bytes that new processes can take, by the machine and by the container around us."""
    # Inside a container the machine's own number is true and of no use: the limit around us comes first.
    available = psutil.virtual_memory().available
    limit = _container_bytes(cgroup)
    return available if limit is None else min(available, limit)


def _container_bytes(cgroup: Path) -> int | None:
    """What a memory limit of cgroup v2 leaves, page cache counted as free; None without a limit."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except FileNotFoundError:
        return None
    if limit == "max":
        return None
    return int(limit) - used + int(statistics["inactive_file"])
