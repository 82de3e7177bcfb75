"""E-processes: evidence multiplied over scrapes, mixed over what might be wrong and since when.

The weighted mean of e-processes is an e-process, so a mixture needs no correction for how many shapes it
tries. By Ville's inequality the chance that one whose mean starts at 1 ever reaches 1/alpha is at most alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

AT_ONCE = 0.6
"""Prior chance that a regression is there from the first request on; the rest comes later."""
MEAN_ONSET_SECONDS = 1800.0
"""Of a regression that comes later: a leak, a cache that fills, users who wake up."""


HEALTHY_WEIGHT = 0.5
"""Of the alternative that the canary is just as good as stable. Most are, and it is known what such a canary shows, so
the bet that is best for it is a part of every question whether the canary is within its margin."""


def with_healthy(weights: Sequence[float]) -> list[float]:
    """The weights of a mixture whose first alternative is the healthy canary; the others share the rest as they did."""
    return [HEALTHY_WEIGHT, *((1 - HEALTHY_WEIGHT) * each for each in weights)]


class Product:
    """Evidence from the start, mixed over alternatives with fixed weights."""

    def __init__(self, weights: Sequence[float], leading: tuple[int, ...] = ()) -> None:
        """`weights` sum to 1; `leading` is how many processes run side by side."""
        self._log_weights = np.log(np.asarray(weights))
        self._log_products = np.zeros((*leading, len(weights)))

    def feed(self, log_e: Array) -> None:
        """Multiply by one scrape's e-values, shape (..., J), each with mean at most 1 given the past."""
        self._log_products = self._log_products + log_e

    @property
    def log_evidence(self) -> Array:
        """Ln of the mixture, shape (...)."""
        return np.asarray(np.logaddexp.reduce(self._log_weights + self._log_products, axis=-1))


class Onset:
    """Evidence since an unknown moment, mixed over alternatives and moments (Shin, Ramdas, Rinaldo, arXiv:2203.03532).

    What began late is seen as fast as what was there at once: products that began before it do not have to
    win back what they lost while all was well.
    """

    def __init__(self, weights: Sequence[float], leading: tuple[int, ...] = ()) -> None:
        """`weights` sum to 1; `leading` is how many processes run side by side."""
        self._log_weights = np.log(np.asarray(weights))
        self._log_started = np.full((*leading, len(weights)), -np.inf)
        self._seconds = 0.0
        self._waiting = 1.0
        """Prior mass of moments that are still to come."""

    def feed(self, log_e: Array, seconds: float) -> None:
        """One more scrape of so many seconds, with e-values as for `Product`."""
        begun = self._waiting < 1
        self._seconds += seconds
        begins = max(self._waiting - self._later(self._seconds), 0.0) if begun else AT_ONCE
        self._waiting -= begins
        start = math.log(begins) if begins > 0 else -math.inf
        self._log_started = np.logaddexp(self._log_started, start) + log_e

    def _later(self, seconds: float) -> float:
        return (1 - AT_ONCE) * math.exp(-seconds / MEAN_ONSET_SECONDS)

    @property
    def log_by_alternative(self) -> Array:
        """Ln of each alternative's part of the mixture, shape (..., J)."""
        return np.asarray(self._log_weights + np.logaddexp(self._log_started, math.log(max(self._waiting, 1e-300))))

    @property
    def log_evidence(self) -> Array:
        """Ln of the mixture, shape (...)."""
        return np.asarray(np.logaddexp.reduce(self.log_by_alternative, axis=-1))


class EvidenceProcess:
    """Both kinds of evidence on one thing that is compared: the canary is worse, and it is within its margin."""

    def __init__(self, worse: Sequence[float], fine: Sequence[float], leading: tuple[int, ...]) -> None:
        """Weights of the alternatives on either side, as for `Onset` and `Product`."""
        self._accepting = (fine, leading)
        self._worse, self._fine = Onset(worse, leading), Product(fine, leading)

    def restart_acceptance(self) -> None:
        """Forget what spoke for the canary: from now on it serves under other conditions, such as more load."""
        self._fine = Product(*self._accepting)

    @property
    def log_worse(self) -> Array:
        """Ln of the evidence that the canary is worse by more than the tolerance, shape (...)."""
        return self._worse.log_evidence

    @property
    def log_fine(self) -> Array:
        """Ln of the evidence that it is worse by less than the margin, shape (...)."""
        return self._fine.log_evidence
