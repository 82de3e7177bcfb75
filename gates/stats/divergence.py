"""How far apart two distributions over the same bins are, and what chance alone makes of it.

`p` are the shares that are seen, `q` those that are expected.

Two arms are compared in many short strata of time: load and questions drift over a day and the canary's share
grows from stage to stage. Totals over all of it would take the hour for the arm. So every stratum compares its
own requests only, and the differences are summed (the Cochran-Mantel-Haenszel test of general association).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]

PRIOR = 0.5
"""Added to every bin's count (Jeffreys), so that an empty bin is rare instead of impossible."""
NEARLY_NORMAL = 10_000.0
"""A non-central chi-squared beyond it: its series is slow to sum, and a normal is as good."""


def smoothed(counts: Vector) -> Vector:
    """Vector of counts by Jeffreys' rule: (count + 1/2) / (total + bins/2)."""
    shares: Vector = (counts + PRIOR) / (counts.sum() + PRIOR * len(counts))
    return shares


def psi(p: Vector, q: Vector) -> float:
    """Population stability index: the sum over bins of (p - q) ln(p / q), the Kullback-Leibler divergence both ways.

    Without drift, times n*m/(n+m) it is chi-squared with one degree less than bins.
    """
    return float((scipy.special.rel_entr(p, q) + scipy.special.rel_entr(q, p)).sum())


@dataclass(frozen=True)
class Divergence:
    """The population stability index of two samples, and how sure it is."""

    value: float
    """Between the smoothed shares: chance alone makes it greater than 0."""
    bins: int
    size: float
    """n*m/(n+m) of both samples' requests: what decides how much chance makes of it."""
    error: float
    """Standard error of `value` while the true divergence is not small (delta method)."""

    def chance_above(self, true: float) -> float:
        """P-value of a divergence this great when the true one is `true` or less."""
        near = _noncentral(self.value * self.size, self._freedom, true * self.size, above=True)
        return max(near, self._normal_above(self.value - self.by_chance - true))

    def chance_below(self, true: float) -> float:
        """P-value of a divergence this small when the true one is `true` or more."""
        # A divergence smaller than chance makes is luck, and must not count as more than none at all.
        seen = max(self.value * self.size, float(scipy.stats.chi2.median(self._freedom)))
        return max(self._normal_above(true - self.value), _noncentral(seen, self._freedom, true * self.size))

    def upper(self, level: float) -> float:
        """What the true divergence is below, wrong with a chance of `level` at most."""
        top = max(self.value, 1e-6)
        while self.chance_below(top) > level:
            top *= 2
        return float(scipy.optimize.brentq(lambda true: self.chance_below(true) - level, 0.0, top, xtol=1e-6))

    @property
    def by_chance(self) -> float:
        """What samples of this size show on average without any drift."""
        return self._freedom / self.size

    @property
    def _freedom(self) -> int:
        return self.bins - 1

    def _normal_above(self, difference: float) -> float:
        return float(scipy.stats.norm.sf(difference / max(self.error, 1e-9)))


def between(p: Vector, n: float, q: Vector, m: float) -> Divergence:
    """The divergence of smoothed shares `p` of `n` requests from `q` of `m` requests."""
    toward_p, toward_q = np.log(p / q) + 1 - q / p, np.log(q / p) + 1 - p / q
    error = math.sqrt(_variance(toward_p, p) / n + _variance(toward_q, q) / m)
    return Divergence(psi(p, q), len(p), n * m / (n + m), error)


def _variance(values: Vector, shares: Vector) -> float:
    mean = float((values * shares).sum())
    return max(0.0, float((shares * (values - mean) ** 2).sum()))


def _noncentral(value: float, freedom: int, noncentral: float, *, above: bool = False) -> float:
    """The non-central chi-squared distribution at `value`; with `above`, what is beyond it."""
    if max(value, noncentral) > NEARLY_NORMAL:
        spread = math.sqrt(2 * (freedom + 2 * noncentral))
        distance = (value - freedom - noncentral) / spread
        normal = scipy.stats.norm
        return float(normal.sf(distance) if above else normal.cdf(distance))
    law = scipy.stats.ncx2
    return float(law.sf(value, freedom, noncentral) if above else law.cdf(value, freedom, noncentral))


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
        """Nothing was counted; at `closes_at` 1 each pair of requests is a stratum of its own."""
        none = np.zeros(bins)
        return cls(none, none, 0.0, none, np.zeros((bins, bins)), none, none, closes_at)

    def plus(self, stable: ArrayLike, canary: ArrayLike) -> Strata:
        """Count more requests; the stratum ends once both arms have enough of it."""
        grown = replace(
            self,
            open_stable=self.open_stable + np.asarray(stable),
            open_canary=self.open_canary + np.asarray(canary),
        )
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

    @property
    def divergence(self) -> Divergence:
        """How far the canary is from the stable arm; both must have requests in strata that are over."""
        n, m = self.canary_requests, self.stable_requests
        expected = self.expected * m / n
        # Rare bins are one.
        merge = _merging(self.canary + expected, min(n, m) / (n + m))
        return between(smoothed(merge @ self.canary), n, smoothed(merge @ expected), m)

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
