"""The capacity of this machine, and whether one more engine fits. Checked before a start, or the kernel decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from rollouts.model import Engine
from tidegate.core.errors import Refused

GIB = 1 << 30

RESERVE_BYTES = GIB // 2
"""Left for proxies, Prometheus and the delivery itself."""


class Admission:
    """Lets engines in one by one, so that two regions that start at once do not count the same memory."""

    def __init__(self, measure: Callable[[], int]) -> None:
        """`measure` is asked again for every engine: bytes that it can take without pushing others out."""
        self._measure = measure
        self._starting: list[Engine] = []
        """The others are in what the machine has left."""

    @contextmanager
    def starting(self, engine: Engine) -> Iterator[None]:
        """Reserve what `engine` needs while it starts; once it has started, the machine's own numbers show it.

        Raises:
            Refused: when it does not fit, with the numbers; nothing is reserved.
        """
        available, promised = self._measure(), sum(each.memory_bytes for each in self._starting)
        free = available - promised - RESERVE_BYTES
        if engine.memory_bytes > free:
            raise Refused(
                f"version {engine.version} needs {_gib(engine.memory_bytes)} of memory and {_gib(max(free, 0))} are "
                "free",
                hint="stop something, or give the engine less memory",
                detail=f"available {_gib(available)}, promised to starting engines {_gib(promised)}, "
                f"kept in reserve {_gib(RESERVE_BYTES)}",
            )
        self._starting.append(engine)
        try:
            yield
        finally:
            self._starting = [each for each in self._starting if each is not engine]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


CGROUP = Path("/sys/fs/cgroup")


def measure(cgroup: Path = CGROUP) -> int:
    """Bytes that new processes can take, by the machine and by the container around us."""
    # Inside a container the machine's own number is true and of no use: the limit around us comes first.
    available = psutil.virtual_memory().available
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except FileNotFoundError:
        return available
    # The page cache counts as free.
    return available if limit == "max" else min(available, int(limit) - used + int(statistics["inactive_file"]))
