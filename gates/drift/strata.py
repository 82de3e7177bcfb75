"""Two arms in many short strata of time: what differs between them, and not what changes for both.

Load and questions drift over a day and the canary's share grows from stage to stage. Totals over all
of it would take the hour for the arm. So every stratum compares its own requests only, and the
differences are summed (the Cochran-Mantel-Haenszel test of general association).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.
from numpy.typing import NDArray

from gates.drift.divergence import Divergence, between, smoothed
from gates.drift.spec import Statistic

Vector = NDArray[np.float64]

STRATUM_REQUESTS = 20
"""On each arm: enough to compare, and soon over."""
RARE_REQUESTS = 5.0
"""Bins that expect fewer on the smaller side share one: chance in them is far from normal."""


@dataclass(frozen=True)
class Strata:
    """Sums over all strata; none grows with time."""

    canary: Vector
    """Requests by bin."""
    expected: Vector
    """What as many requests would be by the stable arm's shares of the same stratum."""
    spread: float
    """Sum of n^2/m over strata of n canary and m stable requests."""
    excess: Vector
    """Canary requests above what both arms' pooled shares expect."""
    covariance: NDArray[np.float64]
    """Of `excess`, when arms are but labels."""
    open_stable: Vector
    open_canary: Vector
    """The stratum that is not over."""
    closes_at: float

    @classmethod
    def begin(cls, bins: int, *, closes_at: float = STRATUM_REQUESTS) -> Strata:
        """Nothing was counted; `closes_at` infinity makes all there is one stratum."""
        none = np.zeros(bins)
        return cls(none, none, 0.0, none, np.zeros((bins, bins)), none, none, closes_at)

    def plus(self, stable: tuple[int, ...], canary: tuple[int, ...]) -> Strata:
        """Count more requests; the stratum ends once both arms have enough of it."""
        grown = replace(self, open_stable=self.open_stable + stable, open_canary=self.open_canary + canary)
        enough = min(grown.open_stable.sum(), grown.open_canary.sum()) >= self.closes_at
        return grown.closed() if enough else grown

    def closed(self) -> Strata:
        """With the open stratum ended; one in which an arm is missing compares nothing and is left out."""
        n, m = float(self.open_canary.sum()), float(self.open_stable.sum())
        none = np.zeros(len(self.canary))
        if not n or not m:
            return replace(self, open_stable=none, open_canary=none)
        pooled = (self.open_canary + self.open_stable) / (n + m)
        variance = n * m / (n + m - 1) if n + m > 1 else 0.0
        return replace(
            self,
            canary=self.canary + self.open_canary,
            expected=self.expected + n * self.open_stable / m,
            spread=self.spread + n**2 / m,
            excess=self.excess + self.open_canary - n * pooled,
            covariance=self.covariance + variance * (np.diag(pooled) - np.outer(pooled, pooled)),
            open_stable=none,
            open_canary=none,
        )

    @property
    def canary_requests(self) -> float:
        """In strata that are over."""
        return float(self.canary.sum())

    @property
    def stable_requests(self) -> float:
        """How many, drawn at once, would tell as much of the stable arm's shares."""
        return self.canary_requests**2 / self.spread if self.spread else 0.0

    def divergence(self, statistic: Statistic) -> Divergence:
        """How far the canary is from the stable arm; both must have requests in strata that are over."""
        n, m = self.canary_requests, self.stable_requests
        seen, expected = self.canary, self.expected * m / n
        # Ordered bins stay where they are: their cumulated shares are never rare.
        if statistic is not Statistic.KS:
            merge = _merging(self.canary + expected, min(n, m) / (n + m))
            seen, expected = merge @ seen, merge @ expected
        return between(statistic, smoothed(seen), n, smoothed(expected), m)

    def chance(self) -> float:
        """P-value of all differences if arms were but labels (chi-squared)."""
        n, m = self.canary_requests, self.stable_requests
        merge = _merging(self.canary + self.expected * m / n, min(n, m) / (n + m))
        excess, covariance = (merge @ self.excess)[:-1], (merge @ self.covariance @ merge.T)[:-1, :-1]
        freedom = int(np.linalg.matrix_rank(covariance, hermitian=True)) if excess.size else 0
        if not freedom:
            return 1.0
        distance = float(excess @ np.linalg.pinv(covariance, hermitian=True) @ excess)
        return float(scipy.stats.chi2.sf(distance, freedom))


def _merging(pooled: Vector, smaller_share: float) -> NDArray[np.float64]:
    """The matrix that sums bins which are rare in both arms together; chosen blind to the arms."""
    expected = pooled * smaller_share
    rare = int((expected < RARE_REQUESTS).sum())
    if not rare:
        return np.eye(len(pooled))
    order = np.argsort(pooled, kind="stable")
    # All rare ones, and more while they are rare even together; two bins stay two.
    reached = int(np.searchsorted(np.cumsum(expected[order]), RARE_REQUESTS)) + 1
    together = min(max(rare, reached), len(pooled) - 1)
    rows = np.eye(len(pooled))[order]
    return np.vstack([rows[:together].sum(axis=0), rows[together:]])
