"""What this machine has left, containers included."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from rollouts.capacity import Machine

CGROUP = Path("/sys/fs/cgroup")


def measure(cgroup: Path = CGROUP) -> Machine:
    """Memory and cores that new processes can use, by the machine and by the container around us."""
    # Inside a container the machine's own number is true and of no use: the limit around us comes first.
    available = psutil.virtual_memory().available
    limit = _container_bytes(cgroup)
    return Machine(
        available_bytes=available if limit is None else min(available, limit), cores=len(os.sched_getaffinity(0))
    )


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
