"""Numbers of one look, of many deliveries and pods at once: kept raw, counted in whatever way a judge counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """Bins of equal width in the logarithm; bin 0 is everything below `low`, the last everything above."""

    low: float
    """Seconds."""
    ratio: float
    """Of an edge to the one before it."""
    bins: int

    @property
    def log_edges(self) -> Array:
        """Ln of the upper edge of every bin but the last."""
        return np.asarray(np.log(self.low) + np.log(self.ratio) * np.arange(self.bins - 1))

    @property
    def middles(self) -> Array:
        """Ln of the middle of every bin."""
        return np.asarray(np.log(self.low) + np.log(self.ratio) * (np.arange(self.bins) - 0.5))


@dataclass(frozen=True)
class Samples:
    """Times of one arm in one look; `owner` is `delivery * pods + pod`, and never falls."""

    log_seconds: NDArray[np.float32]
    owner: NDArray[np.int32]
    deliveries: int
    pods: int

    @property
    def delivery(self) -> NDArray[np.int32]:
        return self.owner // np.int32(self.pods)

    def counts(self, grid: Grid) -> Array:
        """How many fall into each bin: (deliveries, bins)."""
        return self._binned(grid, self.delivery, self.deliveries)

    def pod_counts(self, grid: Grid) -> Array:
        """The same for each pod: (deliveries, pods, bins)."""
        return self._binned(grid, self.owner, self.deliveries * self.pods).reshape(
            self.deliveries, self.pods, grid.bins
        )

    def _binned(self, grid: Grid, owner: NDArray[np.int32], owners: int) -> Array:
        scaled = (self.log_seconds - np.float32(np.log(grid.low))) * np.float32(1 / np.log(grid.ratio))
        bins = np.clip(np.ceil(scaled), 0, grid.bins - 1).astype(np.int64)
        flat = np.bincount(owner * np.int64(grid.bins) + bins, minlength=owners * grid.bins)
        return flat.reshape(owners, grid.bins).astype(np.float64)

    def moments(self) -> tuple[Array, Array, Array]:
        """Number, sum and sum of squares of the logarithms, for each delivery."""
        who, logs = self.delivery, self.log_seconds.astype(np.float64)
        powers = (np.bincount(who, values, self.deliveries) for values in (np.ones_like(logs), logs, logs**2))
        number, total, squares = (power.astype(np.float64) for power in powers)
        return number, total, squares

    def above(self, log_limit: Array) -> Array:
        """How many exceed their delivery's limit."""
        who = self.delivery
        return np.bincount(who, self.log_seconds > log_limit.astype(np.float32)[who], minlength=self.deliveries).astype(
            np.float64
        )


@dataclass(frozen=True)
class Arm:
    """What the pods of one arm did in one look; all arrays are (deliveries, pods)."""

    requests: Integers
    errors: Integers
    ttft: Samples
    itl: Samples
    cached: Array
    """(deliveries, 2): of answered requests, those whose prompt came from the cache, and all; one token each."""


@dataclass(frozen=True)
class Look:
    """One look at many deliveries at once."""

    index: int
    seconds: float
    """Since the canary got traffic, at the end of the look."""
    share: float
    """Of users' traffic on the canary."""
    stable: Arm
    canary: Arm
    stable_scores: Array
    """(deliveries, n): a judge's scores, in pairs with the canary's of the same moment, not the same prompt."""
    canary_scores: Array
    log_load: Array
    """ln of the common factor on all TTFT, (deliveries,): only an oracle may read it."""
    error_rate: Array
    """Of stable, (deliveries,): only an oracle may read it."""
