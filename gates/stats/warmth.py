"""Whether the canary's prefix cache is colder than stable's.

An engine that has just started has an empty cache: it computes what stable kept of earlier prompts, and is slower
whatever its version is. So its requests do not count while the cache is colder by more than a margin.

What was seen before decides that: the mean of an e-value stays 1 given the past, and a scrape that does not count is a
bet of nothing. A scrape decides of itself only where it is cold beyond chance, as when new pods begin: of equal arms
one in a thousand is left out so, the rest looks faster by next to nothing.
"""

from __future__ import annotations

import numpy as np

from gates.stats.e_process import Array

HALF_LIFE_REQUESTS = np.array([1000.0, 5000.0])
"""Of the canary's past and of stable's: a cache fills with requests and not with time. So long a past tells a share to
1.3 percentage points; with a fifth of it chance alone took many a canary for warm too early."""
UNKNOWN = np.array([0.0, 1.0])
"""Their shares before anything was seen: the canary's cache is empty, and stable's may have all that is asked."""
CHANCE = 1.5
"""Over the square root of requests: three standard errors of a share of one half."""


class CachedShares:
    """The shares of the canary's and of stable's prompts that came from their caches, of their last requests."""

    def __init__(self, leading: tuple[int, ...] = ()) -> None:
        """`leading` is how many run side by side."""
        self._tokens = np.zeros((*leading, 2, 2))

    def cold(self, tokens: Array, requests: Array, margin: float) -> Array:
        """Take one scrape, and say whether the canary's requests in it do not count, (...).

        Tokens of prompts are (..., 2, 2), of the canary and of stable, as [cached, all]; requests (..., 2). Everything
        counts as long as nobody told any tokens of an arm.
        """
        known = (self._tokens + tokens)[..., 1].all(axis=-1)
        before, now = (np.diff(_shares(each))[..., 0] for each in (self._tokens, tokens))
        found = (before > margin) | (now > margin + CHANCE / np.sqrt(np.maximum(requests[..., 0], 1)))
        self._tokens = self._tokens * 0.5 ** (requests / HALF_LIFE_REQUESTS)[..., None] + tokens
        return np.asarray(known & found)

    @property
    def shares(self) -> Array:
        """The canary's and stable's, (..., 2)."""
        return _shares(self._tokens)


def _shares(tokens: Array) -> Array:
    cached, whole = np.moveaxis(tokens, -1, 0)
    return np.asarray(np.where(whole > 0, cached / np.maximum(whole, 1), UNKNOWN))
