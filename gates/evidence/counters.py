"""Prometheus' counters and histograms, from raw samples to whole numbers of requests.

`rate()` and `increase()` extrapolate to a window's ends and return fractions of requests; tests on
counts need the requests that were really counted. Every sample is given what was counted between the sample
before it and itself. That depends on the window in no way, so windows that touch add up to the window over both.

A classic histogram has the edges that its program chose. A native one has as many buckets as the data
need, each a fixed share wider than the one before; it is laid on a grid that is the same for all of them. A native one
with custom buckets (schema -53) has a program's edges again, of which only those of filled buckets are told.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


GRID_OCTAVES = (-10, 11)
"""The grid of native histograms, as powers of 2 seconds: about 1 ms to 34 min."""
FINEST = 8
"""Edges for each doubling, 9 % apart: schema 3. A finer native histogram is reduced to this."""
_HAIR = 1e-6
"""Of a grid step: a bucket's edge arrives as a decimal number."""

Bucket = tuple[int, float, float, float]
"""Boundary rule, left and right edge, and count, as Prometheus' API gives a native bucket."""


@dataclass(frozen=True)
class Histogram:
    """One histogram of one target, scrape by scrape."""

    times: tuple[float, ...]
    """Unix seconds, rising."""
    edges: tuple[float, ...]
    """Upper ends in seconds, rising; without the infinite one."""
    counts: Counts
    """A row for each time, a column for each edge and one for what is above the last. Not cumulated: a
    restarted process may have caught up in every cumulated bucket and yet not in every single one."""


def classic(by_edge: Mapping[float, Sequence[Sample]]) -> Histogram:
    """From its bucket series by their upper edge, the infinite one among them.

    Raises:
        NotCounts: when a bucket is missing from a scrape, or holds less than a lower one.
    """
    edges = sorted(by_edge)
    _refuse_many(len(edges) - 1)
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
    return Histogram(times=tuple(times), edges=tuple(edges[:-1]), counts=counts)


NativeSamples = Sequence[tuple[float, Sequence[Bucket]]]


def custom_edges(histograms: Iterable[NativeSamples]) -> tuple[float, ...]:
    """The edges of all filled buckets, where these fit no grid: custom ones, or very coarse ones; else none."""
    filled = {bucket[1:3]: bucket for samples in histograms for _, sample in samples for bucket in sample}
    if _finest(filled.values()) is not None:
        return ()
    return tuple(sorted({edge for both in filled for edge in both if 0 < edge < math.inf}))


def native(samples: NativeSamples, custom: Sequence[float] = ()) -> Histogram:
    """From its samples, on `custom` edges, or on the finest grid that all of them fit.

    Raises:
        NotCounts: for negative times, and for buckets that lie across an edge.
    """
    buckets = [bucket for _, sample in samples for bucket in sample]
    if any(right < 0 or -math.inf < left < -right for _, left, right, _ in buckets):
        raise NotCounts("a native histogram with negative times")
    if custom:
        _refuse_many(len(custom))
        return Histogram(times=tuple(at for at, _ in samples), edges=tuple(custom), counts=_on_custom(samples, custom))
    per_octave = _finest(buckets)
    if per_octave is None:
        raise NotCounts("a native histogram that has no edge and lies on no grid")
    first, last = (octave * per_octave for octave in GRID_OCTAVES)
    edges = tuple(2 ** (index / per_octave) for index in range(first, last + 1))
    rows = np.zeros((len(samples), len(edges) + 1))
    for row, (_, sample) in zip(rows, samples, strict=True):
        for _, _, right, count in sample:
            row[min(max(_cell(right, per_octave), first), last + 1) - first] += count
    return Histogram(times=tuple(at for at, _ in samples), edges=edges, counts=counted(rows.tolist()))


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


def _refuse_many(edges: int) -> None:
    if edges > MOST_EDGES:
        raise NotCounts(f"a histogram of {edges:,} bucket edges, where {MOST_EDGES} are compared at most,")


def _on_custom(samples: NativeSamples, edges: Sequence[float]) -> Counts:
    rows = np.zeros((len(samples), len(edges) + 1))
    for row, (_, sample) in zip(rows, samples, strict=True):
        for _, left, right, count in sample:
            place = bisect_left(edges, right)
            if place and left < edges[place - 1]:
                raise NotCounts("a native histogram whose custom buckets are not those of the others")
            row[place] += count
    return counted(rows.tolist())


def _finest(buckets: Collection[Bucket]) -> int | None:
    resolutions = (FINEST >> halving for halving in range(FINEST.bit_length()))
    return next((fine for fine in resolutions if all(_fits(bucket, fine) for bucket in buckets)), None)


def _cell(right: float, per_octave: int) -> int:
    """The grid's edge that a bucket up to `right` lies below, counted from 1 second."""
    if right <= 0 or math.isinf(right):
        return -FINEST * 1000 if right <= 0 else FINEST * 1000
    return math.ceil(per_octave * math.log2(right) - _HAIR)


def _fits(bucket: Bucket, per_octave: int) -> bool:
    """Whether the bucket lies within one cell of the grid, or beyond one of its ends."""
    _, left, right, _ = bucket
    lowest, highest = (2.0**octave for octave in GRID_OCTAVES)
    if math.isinf(left):
        return False
    if left <= 0 or right <= lowest:
        # The bucket around zero; beyond the first cells it would hide real times.
        return right <= 2 * lowest
    return left >= highest or _cell(right, per_octave) - math.floor(per_octave * math.log2(left) + _HAIR) <= 1
