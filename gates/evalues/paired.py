"""Pairs of one prompt in both arms: whether the canary is later or lower, and whether surely not by the margin."""

from __future__ import annotations

import numpy as np

from gates.evalues.betting import STAKE_WEIGHTS, log_wealth
from gates.evalues.exchange import Array
from gates.evalues.mixture import Onset, Product
from gates.evalues.swap import STEEPNESS_WEIGHTS, log_swap


class Later:
    """Of times: both questions on the ratio of canary to stable within pairs."""

    def __init__(self, *, max_increase: float, tolerance: float, leading: tuple[int, ...] = ()) -> None:
        """Shares of the stable arm's time."""
        self._log_margin, self._log_tolerance = np.log1p(max_increase), np.log1p(tolerance)
        self._leading = leading
        self._worse, self._fine = Onset(STEEPNESS_WEIGHTS, leading), Product(STEEPNESS_WEIGHTS, leading)

    def feed(self, log_ratio: Array, seconds: float) -> None:
        """The pairs of one scrape: ln(canary / stable), shape (..., n); NaN where a pair has no times."""
        self._worse.feed(log_swap(log_ratio - self._log_tolerance), seconds)
        self._fine.feed(log_swap(self._log_margin - log_ratio))

    def restart_acceptance(self) -> None:
        """Forget what spoke for the canary."""
        self._fine = Product(STEEPNESS_WEIGHTS, self._leading)

    @property
    def log_worse(self) -> Array:
        """Ln of the evidence that the canary is later by more than the tolerance."""
        return self._worse.log_evidence

    @property
    def log_fine(self) -> Array:
        """Ln of the evidence that the canary is later by less than the margin."""
        return self._fine.log_evidence


class Lower:
    """Of numbers in 0..1, such as scores: both questions on the mean of stable minus canary.

    A single arm is judged against a fixed bound by giving the bound as `stable`.
    """

    def __init__(self, *, max_drop: float, tolerance: float = 0.0, leading: tuple[int, ...] = ()) -> None:
        """Differences of two means."""
        self._margin, self._tolerance = max_drop, tolerance
        self._leading = leading
        self._worse, self._fine = Onset(STAKE_WEIGHTS, leading), Product(STAKE_WEIGHTS, leading)

    def feed(self, drop: Array, seconds: float) -> None:
        """The pairs of one scrape: stable minus canary, shape (..., n), each in [-1, 1]; NaN where there is none."""
        # Scaled, not cut off at -1: cutting would lift the mean of what is tolerated above 0, a bet that is not fair.
        self._worse.feed(log_wealth((drop - self._tolerance) / (1 + self._tolerance)), seconds)
        self._fine.feed(log_wealth(np.minimum(self._margin - drop, 1.0)))

    def restart_acceptance(self) -> None:
        """Forget what spoke for the canary."""
        self._fine = Product(STAKE_WEIGHTS, self._leading)

    @property
    def log_worse(self) -> Array:
        """Ln of the evidence that the mean drop exceeds the tolerance."""
        return self._worse.log_evidence

    @property
    def log_fine(self) -> Array:
        """Ln of the evidence that the mean drop is less than the margin."""
        return self._fine.log_evidence
