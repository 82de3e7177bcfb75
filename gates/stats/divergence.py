"""How far apart two distributions over the same bins are, and what chance alone makes of it.

`p` are the shares that are seen, `q` those that are expected.

Two arms are compared in many short strata of time: load and questions drift over a day and the canary's share
grows from stage to stage. Totals over all of it would take the hour for the arm. So every stratum compares its
own requests only, and the differences are summed (the Cochran-Mantel-Haenszel test of general association).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import scipy  # It loads `scipy.stats`, which takes a second, only when that is used.
from numpy.typing import NDArray


class Statistic(StrEnum):
    """How far apart two distributions over the same bins are."""

    PSI = "psi"
    """Population stability index: the sum of both Kullback-Leibler divergences, in nats."""
    KL = "kl"
    """Kullback-Leibler divergence of what is from what is expected, in nats."""
    JS = "js"
    """Jensen-Shannon divergence, in nats: 0 to ln 2."""
    CHI2 = "chi2"
    """Symmetric chi-squared distance, 0 to 4: about the PSI while both are small."""
    KS = "ks"
    """Kolmogorov-Smirnov distance over the frozen bins, 0 to 1; only where values have an order."""


Shares = NDArray[np.float64]

PRIOR = 0.5
"""Added to every bin's count (Jeffreys), so that an empty bin is rare instead of impossible."""
CHANCE_SCALE: Mapping[Statistic, float] = {Statistic.PSI: 1, Statistic.CHI2: 1, Statistic.KL: 2, Statistic.JS: 8}
"""Without drift, this times the divergence times n*m/(n+m) is chi-squared with one degree less than bins."""

NEARLY_NORMAL = 10_000.0
"""A non-central chi-squared beyond it: its series is slow to sum, and a normal is as good."""
KOLMOGOROV_MEAN = math.sqrt(math.pi / 2) * math.log(2)
"""Without drift, the mean of the KS distance times the square root of n*m/(n+m)."""


def smoothed(counts: Shares) -> Shares:
    """Shares of counts by Jeffreys' rule: (count + 1/2) / (total + bins/2)."""
    shares: Shares = (counts + PRIOR) / (counts.sum() + PRIOR * len(counts))
    return shares


def psi(p: Shares, q: Shares) -> float:
    """Population stability index: the sum over bins of (p - q) ln(p / q)."""
    return kl(p, q) + kl(q, p)


def kl(p: Shares, q: Shares) -> float:
    """Kullback-Leibler divergence of `p` from `q`, in nats."""
    return float(scipy.special.rel_entr(p, q).sum())


def js(p: Shares, q: Shares) -> float:
    """Jensen-Shannon divergence, in nats; the square of scipy's Jensen-Shannon distance."""
    middle = (p + q) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def chi2(p: Shares, q: Shares) -> float:
    """Symmetric chi-squared distance: the sum over bins of 2 (p - q)^2 / (p + q)."""
    return float((2 * (p - q) ** 2 / (p + q)).sum())


def ks(p: Shares, q: Shares) -> float:
    """Kolmogorov-Smirnov distance: the largest difference of both cumulated shares."""
    return float(np.abs(np.cumsum(p - q)).max())


def _psi_slopes(p: Shares, q: Shares) -> tuple[Shares, Shares]:
    return np.log(p / q) + 1 - q / p, np.log(q / p) + 1 - p / q


def _kl_slopes(p: Shares, q: Shares) -> tuple[Shares, Shares]:
    return np.log(p / q) + 1, -p / q


def _js_slopes(p: Shares, q: Shares) -> tuple[Shares, Shares]:
    middle = (p + q) / 2
    return np.log(p / middle) / 2, np.log(q / middle) / 2


def _chi2_slopes(p: Shares, q: Shares) -> tuple[Shares, Shares]:
    square = (p + q) ** 2
    return 2 * (p - q) * (p + 3 * q) / square, 2 * (q - p) * (q + 3 * p) / square


def _ks_slopes(p: Shares, q: Shares) -> tuple[Shares, Shares]:
    below = np.cumsum(p - q)
    widest = int(np.abs(below).argmax())
    slope = np.where(np.arange(len(p)) <= widest, np.sign(below[widest]), 0.0)
    return slope, -slope


_MEASURES: Mapping[Statistic, Callable[[Shares, Shares], float]] = {
    Statistic.PSI: psi, Statistic.KL: kl, Statistic.JS: js, Statistic.CHI2: chi2, Statistic.KS: ks,
}  # fmt: skip
_SLOPES: Mapping[Statistic, Callable[[Shares, Shares], tuple[Shares, Shares]]] = {
    Statistic.PSI: _psi_slopes, Statistic.KL: _kl_slopes, Statistic.JS: _js_slopes, Statistic.CHI2: _chi2_slopes,
    Statistic.KS: _ks_slopes,
}  # fmt: skip


@dataclass(frozen=True)
class Divergence:
    """One divergence between two samples, and how sure it is."""

    statistic: Statistic
    value: float
    """Between the smoothed shares: chance alone makes it greater than 0."""
    bins: int
    size: float
    """n*m/(n+m) of both samples' requests: what decides how much chance makes of it."""
    error: float
    """Standard error of `value` while the true divergence is not small (delta method)."""

    def chance_above(self, true: float) -> float:
        """P-value of a divergence this great when the true one is `true` or less."""
        if self.statistic is Statistic.KS:
            # The bin that stands out is the widest of bins - 1 places.
            far = self._freedom * self._normal_above(self.value - true)
            none = _ks_above(self.value, self.size)
            return min(1.0, max(none, far)) if self.value > true else 1.0
        near = _noncentral(self._scaled(self.value), self._freedom, self._scaled(true), above=True)
        return max(near, self._normal_above(self.value - self.by_chance - true))

    def chance_below(self, true: float) -> float:
        """P-value of a divergence this small when the true one is `true` or more."""
        far = self._normal_above(true - self.value)
        if self.statistic is Statistic.KS:
            return max(far, _ks_above(max(0.0, true - self.value), self.size))
        # A divergence smaller than chance makes is luck, and must not count as more than none at all.
        seen = max(self._scaled(self.value), float(scipy.stats.chi2.median(self._freedom)))
        return max(far, _noncentral(seen, self._freedom, self._scaled(true)))

    def upper(self, level: float) -> float:
        """What the true divergence is below, wrong with a chance of `level` at most."""
        top = max(self.value, 1e-6)
        while self.chance_below(top) > level:
            top *= 2
        return float(scipy.optimize.brentq(lambda true: self.chance_below(true) - level, 0.0, top, xtol=1e-6))

    @property
    def by_chance(self) -> float:
        """What samples of this size show on average without any drift."""
        if self.statistic is Statistic.KS:
            return KOLMOGOROV_MEAN / math.sqrt(self.size)
        return self._freedom / CHANCE_SCALE[self.statistic] / self.size

    @property
    def _freedom(self) -> int:
        return self.bins - 1

    def _scaled(self, value: float) -> float:
        return CHANCE_SCALE[self.statistic] * value * self.size

    def _normal_above(self, difference: float) -> float:
        return float(scipy.stats.norm.sf(difference / max(self.error, 1e-9)))


def between(statistic: Statistic, p: Shares, n: float, q: Shares, m: float) -> Divergence:
    """The divergence of smoothed shares `p` of `n` requests from `q` of `m` requests."""
    toward_p, toward_q = _SLOPES[statistic](p, q)
    error = math.sqrt(_variance(toward_p, p) / n + _variance(toward_q, q) / m)
    return Divergence(statistic, _MEASURES[statistic](p, q), len(p), n * m / (n + m), error)


def _variance(values: Shares, shares: Shares) -> float:
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


def _ks_above(value: float, size: float) -> float:
    """Chance of a KS distance of `value` or more without drift; its limit where the exact law is slow to sum."""
    if size > NEARLY_NORMAL:
        return float(scipy.stats.kstwobign.sf(value * math.sqrt(size)))
    return float(scipy.stats.kstwo.sf(value, max(1, round(size))))


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
