"""Evidence from pairs, one prompt in both arms: whether the canary is later or lower, and surely not by the margin.

Times, by swapping: when neither arm is slower, swapping the two answers of a pair changes nothing. For any
increasing score g, `2 g(canary) / (g(canary) + g(stable))` then has mean 1; difficulty and load, which differ
from prompt to prompt, cancel within the pair.

Scores, by betting on the mean of bounded numbers (Waudby-Smith and Ramdas, arXiv:2010.09686): a gambler who
stakes a share of her wealth on every draw of x in [-1, 1], at odds that are fair when its mean is 0, cannot
expect to win when the mean is 0 or less. Her wealth is the evidence that it is not.
"""

from __future__ import annotations

import numpy as np

from gates.stats.e_process import Array, EvidenceProcess

STAKES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
STAKE_WEIGHTS = (0.15, 0.2, 0.2, 0.15, 0.15, 0.15)
"""Small stakes find small differences slowly, large ones find large differences soon."""


def log_wealth(values: Array) -> Array:
    """Ln of what each stake made of `values` (..., n), each in [-1, 1]; answer (..., J). NaN counts as no draw."""
    draws = np.nan_to_num(values, nan=0.0)
    return np.asarray(np.log1p(np.asarray(STAKES)[:, None] * draws[..., None, :]).sum(axis=-1))


STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)
STEEPNESS_WEIGHTS = (0.15, 0.2, 0.25, 0.25, 0.15)
LIMIT = 2.0
"""Of the log ratio: one absurd pair is no more telling than a sevenfold one."""


def log_swap(log_ratio: Array) -> Array:
    """Ln e of pairs for each steepness; `log_ratio` (..., n) is ln(canary / stable), answer (..., J).

    A logistic in the ratio: 1 + tanh(s r / 2) is 2 g(c) / (g(c) + g(b)) for g(x) = x^s. NaN counts as no pair.
    """
    ratio = np.clip(np.nan_to_num(log_ratio, nan=0.0), -LIMIT, LIMIT)
    return np.asarray(np.log1p(np.tanh(np.asarray(STEEPNESS)[:, None] * ratio[..., None, :] / 2)).sum(axis=-1))


class PairedTimesProcess(EvidenceProcess):
    """Of times: both questions on the ratio of canary to stable within pairs."""

    def __init__(self, *, max_increase: float, tolerance: float, leading: tuple[int, ...] = ()) -> None:
        """Shares of the stable arm's time."""
        self._log_margin, self._log_tolerance = np.log1p(max_increase), np.log1p(tolerance)
        super().__init__(STEEPNESS_WEIGHTS, STEEPNESS_WEIGHTS, leading)

    def feed(self, log_ratio: Array, seconds: float) -> None:
        """The pairs of one scrape: ln(canary / stable), shape (..., n); NaN where a pair has no times."""
        self._worse.feed(log_swap(log_ratio - self._log_tolerance), seconds)
        self._fine.feed(log_swap(self._log_margin - log_ratio))


class PairedScoresProcess(EvidenceProcess):
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
