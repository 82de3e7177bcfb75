"""Evidence from pairs, one prompt in both arms: whether the canary is later or lower, and surely not by the margin.

Times, by swapping: when neither arm is slower, swapping the two answers of a pair changes nothing. For any
increasing score g, `2 g(canary) / (g(canary) + g(stable))` then has mean 1; difficulty and load, which differ
from prompt to prompt, cancel within the pair.

Scores, by betting on the mean of bounded numbers (Waudby-Smith and Ramdas, arXiv:2010.09686): a gambler who
stakes a share of her wealth on every draw of x in [-1, 1], at odds that are fair when its mean is 0, cannot
expect to win when the mean is 0 or less. Her wealth is the evidence that it is not.

Evidence that the canary is within its margin rests by half on one bet that learns: it is the best one for a canary that
is as good as stable, by what pairs have looked like so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gates.stats.e_process import Array, EvidenceProcess, with_healthy

STAKES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
STAKE_WEIGHTS = (0.15, 0.2, 0.2, 0.15, 0.15, 0.15)
"""Small stakes find small differences slowly, large ones find large differences soon."""


def log_wealth(values: Array, stakes: Sequence[float] | Array = STAKES) -> Array:
    """Ln of what each stake (..., J) made of `values` (..., n); answer (..., J). NaN counts as no draw.

    No stake may lose more than there is: a value times a stake is above -1.
    """
    draws = np.nan_to_num(values, nan=0.0)
    return np.asarray(np.log1p(np.asarray(stakes)[..., None] * draws[..., None, :]).sum(axis=-1))


STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)
STEEPNESS_WEIGHTS = (0.15, 0.2, 0.25, 0.25, 0.15)
LIMIT = 2.0
"""Of the log ratio: one absurd pair is no more telling than a sevenfold one."""


def log_swap(log_ratio: Array, steepness: Sequence[float] | Array = STEEPNESS) -> Array:
    """Ln e of pairs for each steepness (..., J); `log_ratio` (..., n) is ln(canary / stable), answer (..., J).

    A logistic in the ratio: 1 + tanh(s r / 2) is 2 g(c) / (g(c) + g(b)) for g(x) = x^s. NaN counts as no pair.
    """
    ratio = np.clip(np.nan_to_num(log_ratio, nan=0.0), -LIMIT, LIMIT)
    return np.asarray(np.log1p(np.tanh(np.asarray(steepness)[..., None] * ratio[..., None, :] / 2)).sum(axis=-1))


ASSUMED_DRAWS = 4.0
"""How many draws it takes to outweigh what is assumed of them before there are any."""


class _Mean:
    """Of each lane's draws so far, from an assumption on."""

    def __init__(self, assumed: float, leading: tuple[int, ...]) -> None:
        self._total, self._count = np.full(leading, assumed * ASSUMED_DRAWS), np.full(leading, ASSUMED_DRAWS)

    def feed(self, draws: Array) -> None:
        """Draws (..., n); NaN counts as none."""
        self._total = self._total + np.nansum(draws, axis=-1)
        self._count = self._count + (~np.isnan(draws)).sum(axis=-1)

    @property
    def value(self) -> Array:
        return np.asarray(self._total / self._count)


ASSUMED_TIMES_SPREAD = 0.3
"""Of the log ratio within pairs, while there are none."""
STEEPEST = 16.0


class PairedTimesProcess(EvidenceProcess):
    """Of times: both questions on the ratio of canary to stable within pairs."""

    def __init__(
        self,
        *,
        max_increase: float,
        tolerance: float,
        assumed_spread: float = ASSUMED_TIMES_SPREAD,
        leading: tuple[int, ...] = (),
    ) -> None:
        """Shares of the stable arm's time.

        `assumed_spread` is the healthy bet's first guess at the standard deviation of log ratios: a wrong one costs
        time, and no guarantee.
        """
        self._log_margin, self._log_tolerance = np.log1p(max_increase), np.log1p(tolerance)
        self._squares = _Mean(assumed_spread**2, leading)
        super().__init__(STEEPNESS_WEIGHTS, with_healthy(STEEPNESS_WEIGHTS), leading)

    def feed(self, log_ratio: Array, seconds: float) -> None:
        """The pairs of one scrape: ln(canary / stable), shape (..., n); NaN where a pair has no times."""
        self._worse.feed(log_swap(log_ratio - self._log_tolerance), seconds)
        self._fine.feed(log_swap(self._log_margin - log_ratio, self._steepness()))
        self._squares.feed(np.clip(log_ratio, -LIMIT, LIMIT) ** 2)

    def _steepness(self) -> Array:
        """The healthy bet's first: with normal log ratios around 0 it is the likelihood ratio against the margin."""
        best = np.clip(2 * self._log_margin / self._squares.value, STEEPNESS[0], STEEPEST)[..., None]
        return np.concatenate([best, np.broadcast_to(STEEPNESS, (*best.shape[:-1], len(STEEPNESS)))], axis=-1)


ASSUMED_SCORES_SPREAD = 0.2
"""Of the difference of two scores, while there are none."""
LARGEST_STAKE = 0.95
"""Of what a draw can lose at most."""
LEAST_LOSS = 0.1
"""What a draw is taken to lose at most, even when it is less: no stake is beyond ten times a draw."""


class PairedScoresProcess(EvidenceProcess):
    """Of numbers in 0..1, such as scores: both questions on the mean of stable minus canary.

    A single arm is judged against a fixed bound by giving the bound as `stable`.
    """

    def __init__(
        self,
        *,
        max_drop: float,
        tolerance: float = 0.0,
        largest_drop: float = 1.0,
        leading: tuple[int, ...] = (),
    ) -> None:
        """Differences of two means; `largest_drop` is the most that one pair can show, such as the fixed bound."""
        self._margin, self._tolerance = max_drop, tolerance
        self._largest_stake = LARGEST_STAKE / max(largest_drop - max_drop, LEAST_LOSS)
        self._gain, self._square = _Mean(max_drop, leading), _Mean(max_drop**2 + ASSUMED_SCORES_SPREAD**2, leading)
        super().__init__(STAKE_WEIGHTS, with_healthy(STAKE_WEIGHTS), leading)

    def feed(self, drop: Array, seconds: float) -> None:
        """The pairs of one scrape: stable minus canary, shape (..., n), each in [-1, 1]; NaN where there is none."""
        # Scaled, not cut off at -1: cutting would lift the mean of what is tolerated above 0, a bet that is not fair.
        self._worse.feed(log_wealth((drop - self._tolerance) / (1 + self._tolerance)), seconds)
        gain = np.minimum(self._margin - drop, 1.0)
        self._fine.feed(log_wealth(gain, self._stakes()))
        self._gain.feed(gain)
        self._square.feed(gain**2)

    def _stakes(self) -> Array:
        """The healthy bet's first: Kelly's share of wealth by the gains so far, to second order."""
        best = np.clip(self._gain.value / self._square.value, 0.0, self._largest_stake)[..., None]
        return np.concatenate([best, np.broadcast_to(STAKES, (*best.shape[:-1], len(STAKES)))], axis=-1)
