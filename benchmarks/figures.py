"""What benchmarks print next to each other's figures: the machine, and the middle and the worst of several runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from math import ceil
from statistics import median
from typing import Any

import psutil

from tidegate.core.model import Value


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


class Quantiles(Value):
    """Of times in seconds; None where nothing was measured."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Quantiles:
        """The smallest values that 50, 95 and 99 % do not exceed."""
        found = sorted(value for value in values if value is not None)
        shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
        return cls(**{name: found[ceil(len(found) * share) - 1] for name, share in shares.items() if found})
