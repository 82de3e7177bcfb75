"""Whether the canary is slower than stable, and whether surely not by the margin, from times in bins.

The weights of each scrape's bets are made from what the stable arm's times have looked like so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gates.stats.e_process import Array, EvidenceProcess, with_healthy
from gates.stats.exchange import log_e, log_e_odds, log_odds_of
from gates.stats.spread import Spread

FINEST_SECONDS, COARSEST_SECONDS, RATIO = 1e-3, 600.0, 1.05
GOLDEN = (math.sqrt(5) - 1) / 2


def sample_edges() -> Array:
    """Upper edges in seconds of the grid for raw samples: each 5 % above the one before, from 1 ms to 10 minutes."""
    count = math.ceil(math.log(COARSEST_SECONDS / FINEST_SECONDS) / math.log(RATIO))
    return np.asarray(FINEST_SECONDS * RATIO ** np.arange(count + 1))


def count_samples(samples: Sequence[float], edges: Array) -> Array:
    """How many samples lie in each bin: K edges make K + 1 bins, the last without an end."""
    return np.bincount(np.searchsorted(edges, samples, side="left"), minlength=len(edges) + 1).astype(np.float64)


def stretch(edges: Array, factor: float) -> Array:
    """Where the contents of each bin go when every time is multiplied by `factor`: (K + 1, K + 1), rows sum to 1.

    Within a bin times are taken as evenly spread in their logarithm. The first bin is taken to be as wide
    as the second, the last as wide as the one before it; only what moves there is affected, not validity.
    """
    return _stretch(edges.tobytes(), factor)


@lru_cache(64)
def _stretch(edges: bytes, factor: float) -> Array:
    """Kept, and not to be written: all tests of a delivery, and each forecast of its plan, ask for the same few."""
    logs = np.log(np.frombuffer(edges))
    widths = np.diff(logs, prepend=logs[0] - (logs[1] - logs[0]) if len(logs) > 1 else logs[0] - math.log(2))
    low = np.concatenate([logs - widths, logs[-1:]])
    high = np.concatenate([logs, logs[-1:] + widths[-1]])
    begin, end = low + math.log(factor), high + math.log(factor)
    walls = np.concatenate([[-np.inf], logs, [np.inf]])
    overlap = np.minimum(end[:, None], walls[None, 1:]) - np.maximum(begin[:, None], walls[None, :-1])
    moved = np.asarray(np.maximum(overlap, 0) / (high - low)[:, None])
    moved.setflags(write=False)
    return moved


def relax(counts: Array, shrink: Array, scrape: int) -> Array:
    """Counts (..., K + 1) after the stretch `shrink` by a factor below 1, as whole requests.

    Requests only ever move to faster bins, so evidence of "slower" can only fall: an e-value stays one. A
    fraction of a request goes to one side or the other by a sequence that does not look at the data and is
    right on average; replayed, it is the same.
    """
    # Rounding must not make a request slower, nor lose one: huge counts have errors larger than the 1e-9 below.
    total = counts.sum(axis=-1, keepdims=True)
    reached = np.clip(np.cumsum(counts @ shrink, axis=-1), np.cumsum(counts, axis=-1), total)
    return np.diff(np.floor(reached + (scrape * GOLDEN) % 1.0 + 1e-9), axis=-1, prepend=0.0)


HALF_LIFE_SECONDS = 600.0
RECENT_HALF_LIFE_SECONDS = 5.0
RECENT_REQUESTS = 12.0
"""The half-life of what is recent, and in requests on the rarer side of the quantile: the longer of both holds, because
fewer requests do not place a quantile."""
ENOUGH = 30.0
"""Requests before the past is worth betting on."""
BANDWIDTH = 0.12
"""Of the smoothing, in the logarithm of seconds: neighbouring bins borrow from each other within about 12 %."""
FASTEST = 0.01
"""Share of the past below which it does not say how rare a fast request is."""
LARGEST_WEIGHT = np.log(6.0)
"""One request must not decide: no weight beyond 6, none below 1/6."""


class TimeHistory:
    """A histogram that slowly forgets, (..., K + 1) for K edges."""

    def __init__(self, edges: Array, leading: tuple[int, ...] = (), *, recent_of: float | None = None) -> None:
        """`edges` in seconds, rising; with `recent_of`, a quantile, no more is kept than says where that lies now."""
        self._smoothing = _smoothing(edges.tobytes())
        self._counts = np.zeros((*leading, len(edges) + 1))
        self._lasting = None if recent_of is None else RECENT_REQUESTS / min(recent_of, 1 - recent_of)

    def feed(self, stable: Array, seconds: float) -> None:
        """One more scrape of the stable arm, all pods together."""
        kept = self._kept(stable, seconds)
        self._counts = self._counts * kept + stable * (1.0 if self._lasting is None else _kept_of_new(kept))

    def _kept(self, stable: Array, seconds: float) -> Array:
        """The share of the past that still counts after that scrape."""
        kept = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        if self._lasting is None:
            return np.asarray(kept)
        by_requests = 0.5 ** (stable.sum(axis=-1, keepdims=True) / self._lasting)
        return np.asarray(np.minimum(np.maximum(by_requests, 0.5 ** (seconds / RECENT_HALF_LIFE_SECONDS)), kept))

    @property
    def enough(self) -> Array:
        """Whether there is a past at all, (...)."""
        return np.asarray(self._counts.sum(axis=-1) >= ENOUGH)

    @property
    def shares(self) -> Array:
        """The smoothed share of each bin; half a request is spread evenly, so that none is 0."""
        smoothed = self._counts @ self._smoothing + 0.5 / self._counts.shape[-1]
        return np.asarray(smoothed / smoothed.sum(axis=-1, keepdims=True))

    def above(self) -> Array:
        """The smoothed share that exceeds each edge, (..., K)."""
        return np.asarray(1 - np.cumsum(self.shares, axis=-1)[..., :-1])

    def edge_at(self, quantile: float) -> NDArray[np.intp]:
        """The index of the edge nearest to a quantile, (...): of what was seen, because smoothing moves tails out."""
        total = np.maximum(self._counts.sum(axis=-1, keepdims=True), 1.0)
        return nearest_edge(1 - np.cumsum(self._counts, axis=-1)[..., :-1] / total, quantile)


def _kept_of_new(kept: Array) -> Array:
    """The share of a scrape's requests that still counts at its end, as they came evenly; `kept` is of the past."""
    some = np.clip(kept, 1e-9, 1 - 1e-9)
    return np.asarray((1 - some) / -np.log(some))


def slower_by(shares: Array, upwards: Array, *, share: float = 1.0) -> Array:
    """Ln of how much more often each bin would be hit if a share of all times were stretched; never falling with time.

    Made monotone so that only "slower" is evidence of "worse": a second peak of the past must not make a
    fast request look bad. Where the past has next to nothing the ratio is made of the floor alone, about 1;
    below the fastest requests that would lift all others, so there the first known ratio stands.
    """
    hit = 1 - share + share * (shares @ upwards + 1e-9) / (shares + 1e-9)
    ratio = np.clip(np.log(hit), -LARGEST_WEIGHT, LARGEST_WEIGHT)
    first = np.minimum((np.cumsum(shares, axis=-1) < FASTEST).sum(axis=-1), shares.shape[-1] - 1)[..., None]
    known = np.where(np.arange(shares.shape[-1]) < first, np.take_along_axis(ratio, first, axis=-1), ratio)
    return np.asarray(np.maximum.accumulate(known, axis=-1))


def beyond(edge: NDArray[np.intp], bins: int) -> Array:
    """1 for the bins beyond that edge, else 0; (..., bins)."""
    return np.asarray((np.arange(bins) > edge[..., None]).astype(np.float64))


def nearest_edge(above: Array, quantile: float) -> NDArray[np.intp]:
    """The index of the edge whose share above it is nearest to that of the quantile, in log odds."""
    kept = np.clip(above, 1e-6, 1 - 1e-6)
    distance = np.abs(np.log(kept / (1 - kept)) - np.log((1 - quantile) / quantile))
    # The last of equals: where times gather in one spot, it lies right beyond that edge.
    return np.asarray(distance.shape[-1] - 1 - np.argmin(distance[..., ::-1], axis=-1))


@lru_cache(16)
def _smoothing(edges: bytes) -> Array:
    """Row-stochastic: what each bin lends to its neighbours, a normal kernel in the logarithm of seconds. Kept."""
    logs = np.log(np.frombuffer(edges))
    middles = np.concatenate([logs[:1] - 0.05, (logs[:-1] + logs[1:]) / 2, logs[-1:] + 0.05])
    kernel = np.exp(-0.5 * ((middles[:, None] - middles[None, :]) / BANDWIDTH) ** 2)
    rows = np.asarray(kernel / kernel.sum(axis=1, keepdims=True))
    rows.setflags(write=False)
    return rows


SCALES = (1.1, 1.2, 1.5, 3.0)
QUANTILE_ODDS = (1.5, 2.5)
TAIL_ODDS = (2.5, 5.0)
FEW_SHARE, FEW_SCALE = 0.02, 8.0
"""A slow mode: most requests are as before, a few take far longer, as if preempted or without their cache."""
SHAPE_WEIGHTS = (0.16, 0.15, 0.12, 0.07, 0.12, 0.09, 0.1, 0.07, 0.12)
"""For the scales, the odds beyond the declared quantile, those beyond the tail, and the slow mode, in this order."""
FINE_POWERS = (0.5, 0.25, 2.0)
"""Of the odds of a canary that is as fast as stable: two that are slower, one that is faster."""
FINE_WEIGHTS = (0.4, 0.3, 0.3)
RAREST = np.log(0.05)
"""Of these odds, at the margin's: one request must not decide."""
TAIL_PART = 0.2
"""The tail begins where a fifth of what exceeds the quantile is left: p99 for p95."""


class LatencyProcess(EvidenceProcess):
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
        self._reference = TimeHistory(self._edges, leading)
        # Where load changes, the quantile of half an hour is far from today's: nothing would lie on its far side.
        self._now = TimeHistory(self._edges, leading, recent_of=quantile)
        self._spread = Spread(len(SHAPE_WEIGHTS), leading)
        super().__init__(SHAPE_WEIGHTS, with_healthy(FINE_WEIGHTS), leading)
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
        self._remember(pooled, seconds)
        self._scrape += 1

    def learn(self, stable: Array, seconds: float) -> None:
        """What the stable pods did before there was a canary: a past to bet on from the first request."""
        self._spread.feed(self._weights(), stable, seconds)
        self._remember(stable.sum(axis=-2), seconds)

    def _remember(self, stable: Array, seconds: float) -> None:
        for history in (self._reference, self._now):
            history.feed(stable, seconds)

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
        above = self._now.above()
        edge = self._now.edge_at(self._quantile)
        limits = self._edges[edge] * self._margin
        moved = np.searchsorted(self._edges, limits * (1 + 1e-9), side="right") - 1
        at_margin = self._above_seconds(above, self._edges[moved] / self._margin)
        null = log_odds_of(at_margin) - log_odds_of(_take(above, edge))
        alternatives = null[..., None] + self._fine_odds(log_odds_of(_take(above, moved)) - log_odds_of(at_margin))
        gained = log_e_odds(alternatives, null, _split(canary, moved), _split(stable, edge))
        # What tempers the odds beyond the quantile: pods that differ elsewhere are not its concern.
        effect = self.design_effect[..., len(SCALES) : len(SCALES) + len(QUANTILE_ODDS)].max(axis=-1, keepdims=True)
        self._fine.feed(np.where(self._reference.enough[..., None], gained, 0.0) / effect)

    def _fine_odds(self, healthy: Array) -> Array:
        """Ln of the odds of alternatives, as parts of the margin's; `healthy` (...) is that of a canary like stable."""
        return np.asarray(np.clip(healthy, RAREST, 0.0)[..., None] * np.asarray((1.0, *FINE_POWERS)))

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
