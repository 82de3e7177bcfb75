"""Whether the canary is slower than stable, and whether surely not by the margin, from times in bins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gates.evalues.exchange import Array, log_e
from gates.evalues.grid import relax, stretch
from gates.evalues.mixture import Comparison
from gates.evalues.odds import log_e_odds, log_odds_of
from gates.evalues.reference import Reference, beyond, slower_by
from gates.evalues.spread import Spread

SCALES = (1.1, 1.2, 1.5, 3.0)
QUANTILE_ODDS = (1.5, 2.5)
TAIL_ODDS = (2.5, 5.0)
FEW_SHARE, FEW_SCALE = 0.02, 8.0
"""A slow mode: most requests are as before, a few take far longer, as if preempted or without their cache."""
SHAPE_WEIGHTS = (0.16, 0.15, 0.12, 0.07, 0.12, 0.09, 0.1, 0.07, 0.12)
"""For the scales, the odds beyond the declared quantile, those beyond the tail, and the slow mode, in this order."""
FINE_ODDS = (0.85, 0.7, 0.55, 0.4)
FINE_WEIGHTS = (0.25, 0.3, 0.25, 0.2)
TAIL_PART = 0.2
"""The tail begins where a fifth of what exceeds the quantile is left: p99 for p95."""


class Slower(Comparison):
    """Both questions over one grid of bins. Weights come from the past only, so every scrape's evidence is fair."""

    def __init__(
        self,
        edges: Sequence[float] | Array,
        *,
        quantile: float,
        max_increase: float,
        tolerance: float,
        temper: bool = True,
        leading: tuple[int, ...] = (),
    ) -> None:
        """`edges` in seconds, `max_increase` and `tolerance` as shares of the stable arm's times."""
        self._edges = np.asarray(edges, dtype=np.float64)
        self._quantile, self._margin = quantile, 1 + max_increase
        self._shrink = stretch(self._edges, 1 / (1 + tolerance)) if tolerance else np.eye(len(self._edges) + 1)
        self._upwards = [stretch(self._edges, scale) for scale in SCALES]
        self._far = stretch(self._edges, FEW_SCALE)
        self._temper = temper
        self._reference = Reference(self._edges, leading)
        self._spread = Spread(len(SHAPE_WEIGHTS), leading)
        super().__init__(SHAPE_WEIGHTS, FINE_WEIGHTS, leading)
        self._scrape = 0
        self._canary_per_pod = np.zeros(leading)
        self.design_effect = np.ones((*leading, len(SHAPE_WEIGHTS)))

    def feed(self, canary: Array, stable: Array, seconds: float, *, canary_pods: int = 1) -> None:
        """One scrape: canary counts (..., K + 1), stable counts of each pod (..., P, K + 1)."""
        pooled = stable.sum(axis=-2)
        log_h = self._weights()
        relaxed = relax(canary, self._shrink, self._scrape)
        gained = log_e(log_h, relaxed, relaxed + pooled)
        self._canary_per_pod = self._canary_per_pod + canary.sum(axis=-1) / max(canary_pods, 1)
        # Of the past: a spread that this very scrape had a say in would not be fixed before it.
        self.design_effect = self._spread.effect(self._canary_per_pod) if self._temper else self.design_effect
        self._worse.feed(gained / self.design_effect, seconds)
        self._accept(canary, pooled)
        self._spread.feed(log_h, stable, seconds)
        self._reference.feed(pooled, seconds)
        self._scrape += 1

    def learn(self, stable: Array, seconds: float) -> None:
        """What the stable pods did before there was a canary: a past to bet on from the first request."""
        self._spread.feed(self._weights(), stable, seconds)
        self._reference.feed(stable.sum(axis=-2), seconds)

    def forget_pod(self, slot: int) -> None:
        """The stable pod in that slot is gone, and another one takes it."""
        self._spread.forget(slot)

    def _weights(self) -> Array:
        shares = self._reference.shares
        rows = [slower_by(shares, upwards) for upwards in self._upwards]
        for quantile, odds in ((self._quantile, QUANTILE_ODDS), (1 - (1 - self._quantile) * TAIL_PART, TAIL_ODDS)):
            tail = beyond(self._reference.edge_at(quantile), shares.shape[-1])
            rows += [np.log(each) * tail for each in odds]
        rows.append(slower_by(shares, self._far, share=FEW_SHARE))
        return np.stack(rows, axis=-2) * self._reference.enough[..., None, None]

    def _accept(self, canary: Array, stable: Array) -> None:
        """The canary must exceed the margin's edge less often than stable exceeds its quantile's.

        Where no edge lies exactly at the margin, the null allows for the difference: it is the odds ratio
        that a canary slower by the margin would have, by the past's distribution.
        """
        above = self._reference.above()
        edge = self._reference.edge_at(self._quantile)
        limits = self._edges[edge] * self._margin
        moved = np.searchsorted(self._edges, limits * (1 + 1e-9), side="right") - 1
        at_margin = self._above_seconds(above, self._edges[moved] / self._margin)
        null = log_odds_of(at_margin) - log_odds_of(_take(above, edge))
        alternatives = null[..., None] + np.log(np.asarray(FINE_ODDS))
        gained = log_e_odds(alternatives, null, _split(canary, moved), _split(stable, edge))
        # What tempers the odds beyond the quantile: pods that differ elsewhere are not its concern.
        effect = self.design_effect[..., len(SCALES) : len(SCALES) + len(QUANTILE_ODDS)].max(axis=-1, keepdims=True)
        self._fine.feed(np.where(self._reference.enough[..., None], gained, 0.0) / effect)

    def _above_seconds(self, above: Array, seconds: Array) -> Array:
        """The past's share above any time, evenly spread in the logarithm within a bin."""
        logs, at = np.log(self._edges), np.log(seconds)
        upper = np.clip(np.searchsorted(logs, at), 1, len(logs) - 1)
        part = np.clip((at - logs[upper - 1]) / (logs[upper] - logs[upper - 1]), 0, 1)
        return np.asarray(_take(above, upper - 1) * (1 - part) + _take(above, upper) * part)


def _take(values: Array, index: NDArray[np.intp]) -> Array:
    return np.asarray(np.take_along_axis(values, np.asarray(index)[..., None], axis=-1)[..., 0])


def _split(counts: Array, edge: NDArray[np.intp]) -> Array:
    """[not above, above] that edge."""
    above = (counts * (np.arange(counts.shape[-1]) > np.asarray(edge)[..., None])).sum(axis=-1)
    return np.stack([counts.sum(axis=-1) - above, above], axis=-1)
