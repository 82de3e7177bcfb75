"""What benchmarks print next to each other's figures: the machine, and the middle and the worst of several runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from statistics import median
from typing import Any

import psutil


def machine() -> dict[str, Any]:
    """Call it before the runs, whose own load would be in it else."""
    return {
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 1),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def milliseconds(seconds: Iterable[float]) -> dict[str, float]:
    found = [each * 1000 for each in seconds]
    return {"median": round(median(found), 1), "max": round(max(found), 1)}
