"""Times in bins: the grid for raw samples, and what stretching times does to counts in bins."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gates.evalues.exchange import Array

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
    logs = np.log(edges)
    widths = np.diff(logs, prepend=logs[0] - (logs[1] - logs[0]) if len(logs) > 1 else logs[0] - math.log(2))
    low = np.concatenate([logs - widths, logs[-1:]])
    high = np.concatenate([logs, logs[-1:] + widths[-1]])
    begin, end = low + math.log(factor), high + math.log(factor)
    walls = np.concatenate([[-np.inf], logs, [np.inf]])
    overlap = np.minimum(end[:, None], walls[None, 1:]) - np.maximum(begin[:, None], walls[None, :-1])
    return np.asarray(np.maximum(overlap, 0) / (high - low)[:, None])


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
