"""Evidence about a share that is measured against a fixed bound, such as how many pairs arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gates.evalues.exchange import Array
from gates.evalues.mixture import Comparison

STEPS = (0.12, 0.4, 0.75, 0.98)
"""How far alternatives lie between the bound and 0 (worse), or between the bound and 1 (fine)."""
STEP_WEIGHTS = (0.25, 0.25, 0.25, 0.25)


class Share(Comparison):
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
