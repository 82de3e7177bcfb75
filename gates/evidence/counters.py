"""Prometheus' counters and histograms, from raw samples to whole numbers of requests.

`rate()` and `increase()` extrapolate to a window's ends and return fractions of requests; tests on
counts need the requests that were really counted. Every sample is given what was counted between the sample
before it and itself. That depends on the window in no way, so windows that touch add up to the window over both.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from gates.evidence.batch import MOST_EDGES, Buckets

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
    """It is unknown since when it counts: it may be a process of another role until now. It gains nothing here."""


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
    again = (steps < 0).any(axis=1) | np.array([origin is Origin.ZERO for origin in origins], dtype=bool)
    steps[again] = values[again]
    steps[np.array([origin is Origin.UNDATED for origin in origins], dtype=bool)] = 0
    return steps


Histogram = tuple[list[float], tuple[float, ...], Counts]
"""Of one target: the times of its scrapes, rising; its upper edges, rising, without the infinite one; and a row of
counts for each time, with a column for each edge and one for what is above the last. Not cumulated: a restarted process
may have caught up in every cumulated bucket and yet not in every single one."""


def classic(by_edge: Mapping[float, Sequence[Sample]]) -> Histogram:
    """From its bucket series by their upper edge, the infinite one among them.

    Raises:
        NotCounts: when a bucket is missing from a scrape, or holds less than a lower one.
    """
    edges = sorted(by_edge)
    if len(edges) - 1 > MOST_EDGES:
        many = f"a histogram of {len(edges) - 1:,} bucket edges, where {MOST_EDGES} are compared at most,"
        raise NotCounts(many)
    if not edges or not math.isinf(edges[-1]) or len(edges) < 2:
        raise NotCounts("a histogram without an infinite bucket above others")
    times = [at for at, _ in by_edge[edges[-1]]]
    if any([at for at, _ in samples] != times for samples in by_edge.values()):
        raise NotCounts("a histogram that lacks a bucket in some scrapes")
    if edges[0] < 0:
        raise NotCounts(f"a bucket of negative times, up to {edges[0]:g}")
    columns = [[value for _, value in by_edge[edge]] for edge in edges]
    cumulated = counted(list(zip(*columns, strict=True)))
    counts = np.diff(cumulated, axis=1, prepend=0)
    if (counts < 0).any():
        raise NotCounts("a bucket that holds less than one below it")
    return times, tuple(edges[:-1]), counts


def common_edges(grids: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """The edges that all of them have; empty when there are none."""
    sets = [set(grid) for grid in grids]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def buckets(edges: Sequence[float], counts: Sequence[int], common: Sequence[float]) -> Buckets:
    """On `common` edges, each of which is in `edges`; nothing is lost, only told apart less."""
    merged = [0] * (len(common) + 1)
    for edge, count in zip((*edges, math.inf), counts, strict=True):
        merged[bisect_left(common, edge)] += count
    return Buckets(edges=tuple(common), counts=tuple(merged))
