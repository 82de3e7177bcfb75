"""Kayenta's judge, with the settings that its NetflixACAJudge has in its source.

Its input is one number per minute, metric and arm. Each metric is classified by a Wilcoxon rank-sum test in the
normal approximation, with corrections for ties and continuity: High when the lower end of the 98 % interval of
the Hodges-Lehmann shift exceeds a quarter of that shift's estimate. The quarter is relative to the shift itself,
so it is not a practical margin. Every interval judges all points again, without any correction for that. A
metric without data is Nodata and does not count; a run without a High passes.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm, rankdata

from benchmarks.canary_simulation.minutes import METRICS, Minute, MinuteDecider
from benchmarks.canary_simulation.samples import Array

TOLERANCE, CONFIDENCE = 0.25, 0.98
Z = float(norm.isf((1 - CONFIDENCE) / 2))
ROOT_TOLERANCE = 5e-7
"""Of the Brent solver there, absolute, in the metric's unit."""


class Classification(StrEnum):
    """What Kayenta calls a metric."""

    PASS = "Pass"
    HIGH = "High"
    LOW = "Low"
    NODATA = "Nodata"
    ERROR = "Error"


def classify(control: Array, experiment: Array) -> Classification:
    """One metric for which an increase is bad; NaN points are removed, as by its default for most metrics."""
    control, experiment = control[~np.isnan(control)], experiment[~np.isnan(experiment)]
    if control.size == 0 or experiment.size == 0:
        return Classification.NODATA
    if np.array_equal(np.sort(control), np.sort(experiment)) or np.ptp(np.concatenate([control, experiment])) == 0:
        return Classification.PASS
    try:
        low, shift = confidence_interval(control, experiment)
    except ValueError:
        return Classification.ERROR
    higher = mean_ratio(control, experiment) >= 1.0
    return Classification.HIGH if low > TOLERANCE * abs(shift) and higher else Classification.PASS


def confidence_interval(control: Array, experiment: Array) -> tuple[float, float]:
    """Lower end of the interval of the shift and its estimate, as Kayenta's port of R's `wilcox.test` finds them.

    Raises:
        ValueError: all observations are tied, or the estimate is not bracketed.
    """
    least, most = experiment.min() - control.max(), experiment.max() - control.min()

    def beyond(shift: float, quantile: float) -> float:
        return _z(control, experiment - shift) - quantile

    def root(quantile: float) -> float:
        if beyond(least, quantile) <= 0:
            return float(least)
        if beyond(most, quantile) >= 0:
            return float(most)
        return float(brentq(beyond, least, most, args=(quantile,), xtol=ROOT_TOLERANCE))

    return root(Z), float(brentq(beyond, least, most, args=(0.0,), xtol=ROOT_TOLERANCE))


def mean_ratio(control: Array, experiment: Array) -> float:
    """Its default effect size, whose default threshold of 1 filters nothing but a contradiction."""
    return float(experiment.mean() / control.mean()) if control.mean() else np.inf


def score(classifications: list[Classification]) -> float:
    """Of one group of metrics, 0 to 100: Nodata and Error do not count, and a group of only these scores 100."""
    counted = [one for one in classifications if one not in (Classification.NODATA, Classification.ERROR)]
    return 100 * counted.count(Classification.PASS) / len(counted) if counted else 100.0


def _z(control: Array, experiment: Array) -> float:
    """The rank-sum statistic in standard deviations."""
    m, n = experiment.size, control.size
    ranks = rankdata(np.concatenate([experiment, control]))
    excess = ranks[:m].sum() - m * (m + 1) / 2 - m * n / 2
    _, ties = np.unique(ranks, return_counts=True)
    variance = m * n / 12 * (m + n + 1 - (ties**3 - ties).sum() / ((m + n) * (m + n - 1)))
    if variance <= 0:
        raise ValueError("all observations are tied")
    return float((excess - np.sign(excess) * 0.5) / np.sqrt(variance))


class Kayenta(MinuteDecider):
    """A standalone analysis of all points since the start, in which any High metric fails the canary."""

    def __init__(self, name: str, deliveries: int, every_minutes: int) -> None:
        super().__init__(name, deliveries)
        self._every = every_minutes
        self._control: dict[str, list[Array]] = {metric: [] for metric in METRICS}
        self._experiment: dict[str, list[Array]] = {metric: [] for metric in METRICS}

    def feed_minute(self, minute: Minute) -> None:
        """Add one point to each series; judge when the interval is over."""
        for metric in METRICS:
            control, experiment = getattr(minute.baseline, metric), getattr(minute.canary, metric)
            # A judge's score is better when it is higher; what is missing to 1 is worse when it is higher.
            self._control[metric].append(1 - control if metric == "judge" else control)
            self._experiment[metric].append(1 - experiment if metric == "judge" else experiment)
        if len(self._control["errors"]) % self._every == 0:
            for metric in METRICS:
                self._judge(metric, minute.seconds)
        if minute.last:
            self.accept(self.undecided, minute.seconds)

    def _judge(self, metric: str, seconds: float) -> None:
        rows = np.flatnonzero(self.undecided)
        control = np.stack(self._control[metric], axis=1)[rows]
        experiment = np.stack(self._experiment[metric], axis=1)[rows]
        high = np.zeros(len(self.rollback_seconds), dtype=bool)
        for row in np.flatnonzero(may_be_high(control, experiment)):
            high[rows[row]] = classify(control[row], experiment[row]) is Classification.HIGH
        self.roll_back(high, seconds)


def may_be_high(control: Array, experiment: Array) -> NDArray[np.bool_]:
    """A quick test of series (deliveries, points) that no High fails: whether any shift above 0 is possible at all."""
    above = (experiment[:, :, None] > control[:, None, :]).sum(axis=(1, 2))
    below = (experiment[:, :, None] < control[:, None, :]).sum(axis=(1, 2))
    m, n = (~np.isnan(experiment)).sum(axis=1), (~np.isnan(control)).sum(axis=1)
    total = np.maximum(m + n, 2)
    variance = m * n / 12 * (m + n + 1 - _ties(np.concatenate([control, experiment], axis=1)) / (total * (total - 1)))
    separated = (above == m * n) & (m * n > 0)
    return np.asarray(((above - below) / 2 - 0.5 >= (Z - 1e-9) * np.sqrt(np.maximum(variance, 1e-12))) | separated)


def _ties(pooled: Array) -> Array:
    """Sum of t^3 - t over all runs of t equal values in each row."""
    ordered = np.sort(pooled, axis=1)
    run, total = np.ones(len(pooled)), np.zeros(len(pooled))
    for before, after in zip(ordered.T[:-1], ordered.T[1:], strict=True):
        run = np.where(before == after, run + 1, 1)
        total += 3 * run * (run - 1)
    return total
