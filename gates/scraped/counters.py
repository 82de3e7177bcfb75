"""What a Prometheus counter gained within a window, from its raw samples.

`rate()` and `increase()` extrapolate to the window's ends and return fractions of requests; tests on
counts need the requests that were really counted.

Every sample is given what was counted between the sample before it and itself. That depends on the
window in no way, so windows that touch add up to the window over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Sample = tuple[float, float]
"""Unix time in seconds, and the counter's value."""

Counts = NDArray[np.int64]
"""One row for each sample; a counter has one column, a histogram one for each of its buckets."""

LARGEST = 2.0**53
"""Above this a float, which is what Prometheus keeps, skips whole numbers."""


class Origin(Enum):
    """Where a sample's value comes from."""

    CONTINUES = "continues"
    """It counts on from the sample before."""
    ZERO = "zero"
    """The series began at 0 after the sample before, or after the scrape in which it was not there yet."""
    UNDATED = "undated"
    """Nobody knows since when it counts: it may be a process of another role until now. It gains nothing here."""


class NotCounts(ValueError):
    """A series that cannot be what counters are; says in what."""


def counted(values: Sequence[Sequence[float]]) -> Counts:
    """The values as whole numbers.

    Raises:
        NotCounts: for NaN, infinity, a negative or a broken number.
    """
    table = np.asarray(values, dtype=np.float64)
    if not np.isfinite(table).all():
        raise NotCounts("a value that is no number")
    if (table < 0).any():
        raise NotCounts(f"a negative count, {table.min():g}")
    if (table != np.floor(table)).any() or (table > LARGEST).any():
        raise NotCounts(f"a count that is no whole number, {table[(table != np.floor(table)) | (table > LARGEST)][0]}")
    return table.astype(np.int64)


def gains(values: Counts, origins: Sequence[Origin]) -> Counts:
    """What each sample adds to the one before it; `origins` has one entry for each row.

    When any column is below the one before, the process restarted and all of them count from 0 again:
    the buckets of a histogram restart together, even those that have caught up by the next scrape.
    """
    before = np.vstack([np.zeros_like(values[:1]), values[:-1]])
    steps = values - before
    anew = (steps < 0).any(axis=1) | np.array([origin is Origin.ZERO for origin in origins], dtype=bool)
    steps[anew] = values[anew]
    steps[np.array([origin is Origin.UNDATED for origin in origins], dtype=bool)] = 0
    return steps
