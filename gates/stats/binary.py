"""Evidence from counts of two kinds, such as failed and fine: against the other arm, or against a fixed bound.

Worse: the permutation e-value of two bins, with alternatives above the odds ratio that is tolerated.

Fine: evidence that one arm fails less than a margin more often than the other, whatever the other's share of
failures is. Each failure of the canary multiplies the evidence by w < 1, each failure of stable by v > 1, and
each request of the canary by exp(margin (1 - w)). For n requests of the canary and m of stable let
v = 1 + (1 - w) n / m. As 1 + p (w - 1) <= exp(p (w - 1)), the mean of that is at most

    exp(n (1 - w) (margin + stable's share - the canary's share)),

which is at most 1 as soon as the canary's share is higher by the margin or more. Stable's share cancels: it may
wander from scrape to scrape, as long as it does so for both arms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates.stats.e_process import Array, EvidenceProcess
from gates.stats.exchange import log_e_odds, log_odds_of
from gates.stats.spread import Spread

WORSE_ODDS = (1.5, 2.0, 3.0, 5.0, 10.0)
WORSE_WEIGHTS = (0.25, 0.3, 0.2, 0.15, 0.1)
"""Most weight where data are scarce: a tenfold rate shows itself soon."""


def log_e_difference(weights: Array, margin: float, canary: Array, stable: Array) -> Array:
    """Ln e of one scrape for each of several weights w, fixed before its failures were seen.

    Shapes: `weights` (..., J), `canary` and `stable` (..., 2) as [fine, bad]; answer (..., J), 0 without stable.
    """
    drawn, other = canary.sum(axis=-1)[..., None], stable.sum(axis=-1)[..., None]
    lighter = 1 - weights
    heavier = np.log1p(lighter * drawn / np.maximum(other, 1))
    gained = canary[..., 1:] * np.log(weights) + stable[..., 1:] * heavier + drawn * margin * lighter
    return np.asarray(np.where(other > 0, gained, 0.0))


def best_weight(share: Array, margin: float, canary: Array, stable: Array) -> Array:
    """The w that wins most when both arms fail with that share; the counts only say how many requests there are."""
    ratio = canary.sum(axis=-1) / np.maximum(stable.sum(axis=-1), 1)
    total = (share + margin) * (1 + ratio)
    root = np.sqrt(np.maximum(total**2 - 4 * margin * ratio * share * (1 + ratio), 0))
    return np.asarray(2 * share * (1 + ratio) / (total + root))


STEPS = (0.12, 0.4, 0.75, 0.98)
"""How far alternatives lie between the bound and 0 (worse), or between the bound and 1 (fine)."""
STEP_WEIGHTS = (0.25, 0.25, 0.25, 0.25)


class ShareProcess(EvidenceProcess):
    """Likelihood ratios of a coin whose share lies below the bound, or above it (Wald 1945), mixed."""

    def __init__(self, bound: float, *, above: Sequence[float] = (), leading: tuple[int, ...] = ()) -> None:
        """`bound` lies within 0 and 1; `above` are the shares that are fine, when something is known of them."""
        steps = np.asarray(STEPS)
        self._bound = bound
        self._below, self._above = bound * (1 - steps), np.asarray(above or bound + (1 - bound) * steps)
        super().__init__(STEP_WEIGHTS, [1 / len(self._above)] * len(self._above), leading)

    def feed(self, hits: NDArray[Any], misses: NDArray[Any], seconds: float) -> None:
        """Counts (...) of one scrape."""
        self._worse.feed(self._log_ratio(self._below, hits, misses), seconds)
        self._fine.feed(self._log_ratio(self._above, hits, misses))

    def _log_ratio(self, alternatives: Array, hits: NDArray[Any], misses: NDArray[Any]) -> Array:
        hit, miss = np.log(alternatives / self._bound), np.log((1 - alternatives) / (1 - self._bound))
        return np.asarray(np.asarray(hits)[..., None] * hit + np.asarray(misses)[..., None] * miss)


FINE_POWERS = (1.0, 0.65, 0.3, 1.5)
"""Of the weight that is best when the canary is as good as stable: less for one that is worse, more for a better."""
FINE_RATES = (0.02, 0.2, 0.5)
"""Alternatives as parts of the margin: a canary that hardly ever fails, or fails less than the margin by itself."""
ACCEPT_WEIGHTS = (0.5, 0.12, 0.08, 0.06, 0.14, 0.06, 0.04)
"""Half of it on the canary that is as good as stable."""
HALF_LIFE_SECONDS = 1800.0
LARGEST_MARGIN = 0.999


class FailureProcess(EvidenceProcess):
    """Both questions over [fine, failed] counts."""

    def __init__(
        self,
        *,
        max_increase: float,
        tolerance: float = 0.0,
        temper: bool = True,
        leading: tuple[int, ...] = (),
    ) -> None:
        """`max_increase` and `tolerance` are differences of two shares of requests."""
        # A canary that may fail always is no bet.
        self._margin, self._tolerance, self._temper = min(max_increase, LARGEST_MARGIN), tolerance, temper
        self._past = np.zeros((*leading, 2))
        self._spread = Spread(1, leading)
        super().__init__(WORSE_WEIGHTS, ACCEPT_WEIGHTS, leading)
        self._canary_per_pod = np.zeros(leading)
        self.design_effect = np.ones((*leading, 1))

    def feed(self, canary: Array, stable: Array, seconds: float, *, canary_pods: int = 1) -> None:
        """One scrape: canary counts (..., 2) as [fine, failed], stable counts of each pod (..., P, 2)."""
        pooled = stable.sum(axis=-2)
        self._canary_per_pod = self._canary_per_pod + canary.sum(axis=-1) / max(canary_pods, 1)
        self.design_effect = self._spread.effect(self._canary_per_pod) if self._temper else self.design_effect
        tolerated = self._null_odds(self._tolerance, _estimate(self._past))
        worse = tolerated[..., None] + np.log(np.asarray(WORSE_ODDS))
        self._worse.feed(log_e_odds(worse, tolerated, canary, pooled) / self.design_effect, seconds)
        best = best_weight(_estimate(self._past), self._margin, canary, pooled)
        gained = log_e_difference(best[..., None] ** np.asarray(FINE_POWERS), self._margin, canary, pooled)
        gained = np.concatenate([gained, self._below_margin(canary, pooled)], axis=-1)
        self._fine.feed(gained / self.design_effect)
        self.learn(stable, seconds)

    def learn(self, stable: Array, seconds: float) -> None:
        """What the stable pods did before there was a canary."""
        self._spread.feed(np.broadcast_to([[0.0, 1.0]], (*self._past.shape[:-1], 1, 2)), stable, seconds)
        self._past = self._past * 0.5 ** (seconds / HALF_LIFE_SECONDS) + stable.sum(axis=-2)

    def forget_pod(self, slot: int) -> None:
        """The stable pod in that slot is gone, and another one takes it."""
        self._spread.forget(slot)

    def _below_margin(self, canary: Array, stable: Array) -> Array:
        """A canary that fails by the margin more often fails at least by the margin, whatever stable does.

        The comparison is slow to say so while nobody fails at all; this is not.
        """
        if not self._margin:
            return np.zeros((*canary.shape[:-1], len(FINE_RATES)))
        rates = self._margin * np.asarray(FINE_RATES)
        fine, failed = np.log1p(-rates) - np.log1p(-self._margin), np.log(rates / self._margin)
        gained = canary[..., :1] * fine + canary[..., 1:] * failed
        return np.asarray(np.where(stable.sum(axis=-1)[..., None] > 0, gained, 0.0))

    def _null_odds(self, difference: float, share: Array) -> Array:
        """Ln of the odds ratio of a share that is higher by `difference`."""
        if not difference:
            return np.zeros_like(share)
        return np.asarray(log_odds_of(np.minimum(share + difference, 1.0)) - log_odds_of(share))


def _estimate(past: Array) -> Array:
    return np.asarray((past[..., 1] + 0.5) / (past.sum(axis=-1) + 1))
