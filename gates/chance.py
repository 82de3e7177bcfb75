"""How likely chance alone explains what was seen: exact one-sided tests, each for one look.

The gates ask again and again while data arrive, so a level here is not the rate of false alarms over
a delivery; it is kept low (`ALPHA`) because of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

ALPHA = 0.005
"""Below this a regression counts as proven."""


def more_above(above: int, total: int, *, reference_rank: int, reference_total: int) -> float:
    """P-value of `above` of `total` exceeding the reference's `reference_rank`-th smallest value.

    Under equal distributions the share above that order statistic is Beta distributed, whatever the
    distribution is; the count is therefore beta-binomial. That is the precedence test: exact, and
    honest about how little a small reference says about its own quantile.
    """
    beyond = reference_total - reference_rank + 1
    return float(stats.betabinom.sf(above - 1, total, beyond, reference_rank))


def more_failures(failed: int, total: int, *, reference_failed: int, reference_total: int, margin: float) -> float:
    """P-value of the failure rate exceeding the reference's by more than `margin`.

    The greater of two: Fisher's exact test against an equal rate, which knows how little is known of
    the reference, and the binomial test against the reference's rate plus the margin.
    """
    # The margin alone would take the reference's own rate for exactly known; a small sample says little.
    table = [[failed, total - failed], [reference_failed, reference_total - reference_failed]]
    equal = float(stats.fisher_exact(table, alternative="greater").pvalue)
    allowed = min(1.0, reference_failed / reference_total + margin)
    return max(equal, float(stats.binom.sf(failed - 1, total, allowed)))


def mean_above(values: Sequence[float], bound: float) -> float:
    """P-value of the mean of `values` exceeding `bound` (one-sided t-test)."""
    if len(values) < 2:
        return 1.0
    excess = sum(values) / len(values) - bound
    error = standard_error(values)
    # Values without any spread leave no room for chance.
    if error == 0:
        return 0.0 if excess > 0 else 1.0
    return float(stats.t.sf(excess / error, len(values) - 1))


def majority(wins: int, trials: int) -> float:
    """P-value of `wins` of `trials` when each side is as likely as the other (sign test)."""
    return float(stats.binom.sf(wins - 1, trials, 0.5))


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of two values or more."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
