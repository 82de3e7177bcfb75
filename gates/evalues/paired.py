"""Pairs of one prompt in both arms: whether the canary is later or lower, and whether surely not by the margin."""

from __future__ import annotations

import numpy as np

from gates.evalues.betting import STAKE_WEIGHTS, log_wealth
from gates.evalues.exchange import Array
from gates.evalues.mixture import Comparison
from gates.evalues.swap import STEEPNESS_WEIGHTS, log_swap


class Later(Comparison):
    """Of times: both questions on the ratio of canary to stable within pairs."""

    def __init__(self, *, max_increase: float, tolerance: float, leading: tuple[int, ...] = ()) -> None:
        """Shares of the stable arm's time."""
        self._log_margin, self._log_tolerance = np.log1p(max_increase), np.log1p(tolerance)
        super().__init__(STEEPNESS_WEIGHTS, STEEPNESS_WEIGHTS, leading)

    def feed(self, log_ratio: Array, seconds: float) -> None:
        """The pairs of one scrape: ln(canary / stable), shape (..., n); NaN where a pair has no times."""
        self._worse.feed(log_swap(log_ratio - self._log_tolerance), seconds)
        self._fine.feed(log_swap(self._log_margin - log_ratio))


class Lower(Comparison):
    """Of numbers in 0..1, such as scores: both questions on the mean of stable minus canary.

    A single arm is judged against a fixed bound by giving the bound as `stable`.
    """

    def __init__(self, *, max_drop: float, tolerance: float = 0.0, leading: tuple[int, ...] = ()) -> None:
        """Differences of two means."""
        self._margin, self._tolerance = max_drop, tolerance
        super().__init__(STAKE_WEIGHTS, STAKE_WEIGHTS, leading)

    def feed(self, drop: Array, seconds: float) -> None:
        """The pairs of one scrape: stable minus canary, shape (..., n), each in [-1, 1]; NaN where there is none."""
        # Scaled, not cut off at -1: cutting would lift the mean of what is tolerated above 0, a bet that is not fair.
        self._worse.feed(log_wealth((drop - self._tolerance) / (1 + self._tolerance)), seconds)
        self._fine.feed(log_wealth(np.minimum(self._margin - drop, 1.0)))
