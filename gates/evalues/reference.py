"""What the stable arm's times have looked like so far: the past from which weights for the next scrape are made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gates.evalues.exchange import Array

HALF_LIFE_SECONDS = 600.0
ENOUGH = 30.0
"""Requests before the past is worth betting on."""
BANDWIDTH = 0.12
"""Of the smoothing, in the logarithm of seconds: neighbouring bins borrow from each other within about 12 %."""
FASTEST = 0.01
"""Share of the past below which it does not say how rare a fast request is."""
LARGEST_WEIGHT = np.log(6.0)
"""One request must not decide: no weight beyond 6, none below 1/6."""


class Reference:
    """A histogram that slowly forgets, (..., K + 1) for K edges."""

    def __init__(self, edges: Array, leading: tuple[int, ...] = ()) -> None:
        """`edges` in seconds, rising."""
        self._smoothing = _smoothing(edges)
        self._counts = np.zeros((*leading, len(edges) + 1))

    def feed(self, stable: Array, seconds: float) -> None:
        """One more scrape of the stable arm, all pods together."""
        self._counts = self._counts * 0.5 ** (seconds / HALF_LIFE_SECONDS) + stable

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


def _smoothing(edges: Array) -> Array:
    """Row-stochastic: what each bin lends to its neighbours, a normal kernel in the logarithm of seconds."""
    logs = np.log(edges)
    middles = np.concatenate([logs[:1] - 0.05, (logs[:-1] + logs[1:]) / 2, logs[-1:] + 0.05])
    kernel = np.exp(-0.5 * ((middles[:, None] - middles[None, :]) / BANDWIDTH) ** 2)
    return np.asarray(kernel / kernel.sum(axis=1, keepdims=True))
