"""Whether the canary fails more often than stable, and whether surely not by the margin, from counts."""

from __future__ import annotations

import numpy as np

from gates.evalues.difference import best_weight, log_e_difference
from gates.evalues.exchange import Array
from gates.evalues.mixture import Comparison
from gates.evalues.odds import (
    WORSE_ODDS,
    WORSE_WEIGHTS,
    log_e_odds,
    log_odds_of,
)
from gates.evalues.spread import Spread

FINE_POWERS = (1.0, 0.65, 0.3, 1.5)
"""Of the weight that is best when the canary is as good as stable: less for one that is worse, more for a better."""
FINE_RATES = (0.02, 0.2, 0.5)
"""Alternatives as parts of the margin: a canary that hardly ever fails, or fails less than the margin by itself."""
ACCEPT_WEIGHTS = (0.385, 0.14, 0.105, 0.07, 0.18, 0.08, 0.04)
HALF_LIFE_SECONDS = 1800.0
LARGEST_MARGIN = 0.999


class Failing(Comparison):
    """Both questions over [fine, failed] counts."""

    def __init__(
        self, *, max_increase: float, tolerance: float = 0.0, temper: bool = True, leading: tuple[int, ...] = ()
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
