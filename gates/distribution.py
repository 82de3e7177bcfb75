"""A distribution of latencies, from raw samples or from a histogram's buckets, asked in one way.

Both are cells: a sample is a cell without width, a bucket is a cell as wide as its edges are apart.
The same requests therefore lead to the same verdict, within a bucket's width, whoever counted them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gates.model import NoData
from tidegate.core.model import Value


class Cell(Value):
    """So many requests took more than `low` and at most `high` seconds."""

    low: float
    """In seconds, as `high`; the same as `high` for a single sample."""
    high: float
    """Infinite in the last bucket of a histogram."""
    count: float


class Distribution(Value):
    """Latencies in seconds, as cells from fast to slow."""

    cells: tuple[Cell, ...]

    @classmethod
    def from_samples(cls, samples: Iterable[float]) -> Distribution:
        """One cell without width per sample."""
        return cls(cells=tuple(Cell(low=sample, high=sample, count=1) for sample in sorted(samples)))

    @classmethod
    def from_buckets(cls, edges: Sequence[float], counts: Sequence[float]) -> Distribution:
        """`edges` are the upper ends in rising order, `counts` what lies in each bucket (not cumulated)."""
        lows = [0.0, *edges[:-1]]
        cells = zip(lows, edges, counts, strict=True)
        return cls(cells=tuple(Cell(low=low, high=high, count=count) for low, high, count in cells if count > 0))

    @property
    def count(self) -> int:
        """How many requests there are."""
        return round(sum(cell.count for cell in self.cells))

    def quantile(self, q: float) -> float:
        """The latency that a share `q` of requests does not exceed; evenly spread within a bucket.

        Beyond a histogram's last finite edge nothing is known, so that edge is the answer.

        Raises:
            ValueError: when there is no request.
        """
        if not self.cells:
            raise ValueError("no requests, no quantile")
        # A relative hair below the rank, so that 0.95 * 40 = 38.0000001 is still the 38th request.
        rank = q * sum(cell.count for cell in self.cells) * (1 - 1e-12)
        seen = 0.0
        for cell in self.cells:
            if seen + cell.count >= rank:
                return _within(cell, (rank - seen) / cell.count)
            seen += cell.count
        return _within(self.cells[-1], 1.0)

    def share_above(self, seconds: float) -> float:
        """The share of requests that took longer than `seconds`; 0 when there is no request."""
        total = sum(cell.count for cell in self.cells)
        return sum(cell.count * _part_above(cell, seconds) for cell in self.cells) / total if total else 0.0

    def count_above(self, seconds: float) -> int:
        """How many requests took longer than `seconds`."""
        return round(self.share_above(seconds) * self.count)


class Latencies(Value):
    """What the latency gate looks at: both arms of one region in one window."""

    stable: Distribution | NoData
    canary: Distribution | NoData


def _within(cell: Cell, part: float) -> float:
    return cell.low if math.isinf(cell.high) else cell.low + (cell.high - cell.low) * part


def _part_above(cell: Cell, seconds: float) -> float:
    if seconds < cell.low or (seconds == cell.low and cell.high > cell.low):
        return 1.0
    if seconds >= cell.high:
        return 0.0
    # Within the open last bucket only "more than its lower edge" is known; so it counts as above.
    return 1.0 if math.isinf(cell.high) else (cell.high - seconds) / (cell.high - cell.low)
