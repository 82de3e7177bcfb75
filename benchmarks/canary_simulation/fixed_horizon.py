"""Tests made for one look at the end: once as they should be, and peeked at every look as they often are.

All are stratified by look: what drifts in both arms together cancels. The variance is that of the permutation
null within the look. The pooled variant adds up totals over time first, as a dashboard does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from benchmarks.canary_simulation.deciders import Times
from benchmarks.canary_simulation.minutes import METRICS
from benchmarks.canary_simulation.samples import Array, Look, Samples

ALPHA = 0.01
"""Of the whole delivery."""
FEW = 30
"""Canary requests before a normal approximation is looked at."""


@dataclass(frozen=True)
class Moments:
    """Number, sum and sum of squares of both arms in one look, (deliveries,) each."""

    canary: tuple[Array, Array, Array]
    stable: tuple[Array, Array, Array]


def errors(look: Look) -> Moments:
    """Failed requests."""
    return Moments(*(_shares(arm.errors.sum(axis=1), arm.requests.sum(axis=1)) for arm in (look.canary, look.stable)))


def times(canary: Samples, stable: Samples) -> Moments:
    """Ln of times."""
    return Moments(canary.moments(), stable.moments())


def above(canary: Samples, stable: Samples, log_limit: Array) -> Moments:
    """Times that exceed a limit."""
    return Moments(*(_shares(arm.above(log_limit), arm.moments()[0]) for arm in (canary, stable)))


def scores(look: Look) -> Moments:
    """What a judge's scores lack of 1."""
    return Moments(*(_moments(1 - values) for values in (look.canary_scores, look.stable_scores)))


def _shares(bad: Array, total: Array) -> tuple[Array, Array, Array]:
    bad = bad.astype(np.float64)
    return total.astype(np.float64), bad, bad


def _moments(values: Array) -> tuple[Array, Array, Array]:
    return np.full(len(values), float(values.shape[1])), values.sum(axis=1), (values**2).sum(axis=1)


class StratifiedZ:
    """How many standard deviations the canary's mean is above the stable arm's, added up over looks."""

    def __init__(self, deliveries: int) -> None:
        self._excess, self._variance, self.seen = np.zeros(deliveries), np.zeros(deliveries), np.zeros(deliveries)

    def feed(self, moments: Moments) -> None:
        """One more look; a look without one of the arms says nothing."""
        (m, x, xx), (n, y, yy) = moments.canary, moments.stable
        total = m + n
        both = (m > 0) & (n > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            weight = m * n / total
            spread = (xx + yy - (x + y) ** 2 / total) / (total - 1)
            self._excess += np.where(both, weight * (x / m - y / n), 0)
            self._variance += np.where(both, weight * spread, 0)
        self.seen += m

    @property
    def z(self) -> Array:
        return self._excess / np.sqrt(np.maximum(self._variance, 1e-12))


class PooledZ:
    """The same of totals over time, whatever the share and the load were when they came about."""

    def __init__(self, deliveries: int) -> None:
        self._sums = np.zeros((2, 3, deliveries))

    def feed(self, moments: Moments) -> None:
        """One more look."""
        self._sums += np.array([moments.canary, moments.stable])

    @property
    def z(self) -> Array:
        (m, x, xx), (n, y, yy) = self._sums
        variance = (xx / m - (x / m) ** 2) / m + (yy / n - (y / n) ** 2) / n
        return np.asarray((x / m - y / n) / np.sqrt(np.maximum(variance, 1e-12)))


class Accumulated:
    """The statistics of all four metrics, computed once for all judges that read them."""

    def __init__(self, deliveries: int) -> None:
        self.stratified = {metric: StratifiedZ(deliveries) for metric in METRICS}
        self.pooled = {metric: PooledZ(deliveries) for metric in METRICS}

    def feed(self, look: Look) -> None:
        """One more look."""
        moments = {
            "errors": errors(look),
            "ttft": times(look.canary.ttft, look.stable.ttft),
            "itl": times(look.canary.itl, look.stable.itl),
            "judge": scores(look),
        }
        for metric, one in moments.items():
            self.stratified[metric].feed(one)
            self.pooled[metric].feed(one)


class FixedHorizon:
    """z-tests at alpha/4 for each of four metrics: peeked at each look, once at the end, and once on pooled totals."""

    def __init__(self, deliveries: int, looks: int) -> None:
        self.peeked = Times("z-tests, peeked every 10 s", deliveries)
        self.once = Times("z-tests, once at the end", deliveries)
        self.pooled = Times("z-tests on pooled totals, once", deliveries)
        self.deciders = (self.peeked, self.once, self.pooled)
        self._sums, self._looks = Accumulated(deliveries), looks
        self._critical = float(norm.isf(ALPHA / len(METRICS)))

    def feed(self, look: Look) -> None:
        """See one more look."""
        self._sums.feed(look)
        for one in self._sums.stratified.values():
            self.peeked.roll_back((one.z > self._critical) & (one.seen >= FEW), look.seconds)
        if look.index + 1 < self._looks:
            return
        for metric in METRICS:
            self.once.roll_back(self._sums.stratified[metric].z > self._critical, look.seconds)
            self.pooled.roll_back(self._sums.pooled[metric].z > self._critical, look.seconds)
        for decider in self.deciders:
            decider.accept(decider.undecided, look.seconds)
