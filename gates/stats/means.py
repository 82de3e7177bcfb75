"""Evidence on means of which only sums and counts are known: whether the canary's is worse, and surely not by a margin.

In one window the canary's n events add up to a, stable's m events to b. Let every value of the canary be divided by a
factor f, and let x be the canary's mean, so divided, over the mean of all n + m. When divided values and those of
stable have the same distribution during that window, every way of choosing the canary's n events from all n + m is
equally likely, and x has mean exactly 1, whatever the values are and however they drift: of all events the mean is
known, though no single value is. That is a permutation e-value (Koning, arXiv:2310.01153) of the one statistic that
sums allow, and a bet on it (Waudby-Smith and Ramdas, arXiv:2010.09686).

Above: 1 + s (x - 1) for stakes s below 1 is never negative, as values are not. It is an e-value, exactly.

Below: 1 + s (1 - x) is one as long as x stays below 1 + 1 / s. At most x is 1 + m / n, and a stake that is safe from
that wins next to nothing while the canary has few events. So stakes are such that x must lie `REACH` standard errors
above 1 to be out of bounds, by the spread that windows have shown so far; there the wealth is taken to be `FLOOR`,
which makes it an e-value up to the mean of what lies beyond. No bet on a mean of values without a bound can be exact
and win (Bahadur and Savage, Annals of Mathematical Statistics 27, 1956).
"""

from __future__ import annotations

import numpy as np

from gates.stats.e_process import Array, EvidenceProcess, with_healthy

STAKES = (0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
STAKE_WEIGHTS = (0.15, 0.2, 0.2, 0.15, 0.15, 0.15)
"""Small stakes find small differences slowly, large ones find large differences soon."""
REACH = 5.0
"""Simulated with values whose deviation is three times their mean, ten a window: at the margin 3.5 % of 1,000 passed
instead of 5 % at most. With 4 it was 8 %."""
FLOOR = 0.05
ASSUMED_SPREAD = 1.0
"""Standard deviation of single values over their mean, while no window has shown any."""
ASSUMED_WINDOWS = 4.0
"""How many windows it takes to outweigh that."""


class MeanProcess(EvidenceProcess):
    """Both questions on the ratio of the canary's mean to stable's."""

    def __init__(
        self, *, tolerated: float, margin: float, leading: tuple[int, ...] = (), assumed_spread: float = ASSUMED_SPREAD
    ) -> None:
        """Ratios that are no regression, and that are one: 1.05 and 1.2 where higher is worse, 0.95 and 0.8 where lower
        is.

        `assumed_spread` is a first guess of the standard deviation of single values over their mean.
        """
        self._tolerated, self._margin = tolerated, margin
        self._squares = np.full(leading, assumed_spread**2 * ASSUMED_WINDOWS)
        self._windows = ASSUMED_WINDOWS
        super().__init__(STAKE_WEIGHTS, with_healthy(STAKE_WEIGHTS), leading)

    @property
    def spread(self) -> Array:
        """Of single values over their mean, as windows of both arms have shown it, (...)."""
        return np.asarray(np.sqrt(self._squares / self._windows))

    def feed(self, canary: Array, stable: Array, seconds: float) -> None:
        """The windows of one look: [sum, count] of each, shape (..., n, 2), with events of both arms in every one."""
        (a, n), (b, m) = np.moveaxis(canary, -1, 0), np.moveaxis(stable, -1, 0)
        error = np.maximum(self.spread[..., None], 1e-6) * np.sqrt(m / ((n + m) * n))
        cap = np.minimum(REACH * error, m / n)
        worse, fine = (_above, _below) if self._margin > 1 else (_below, _above)
        stakes = np.broadcast_to(np.asarray(STAKES)[:, None], (*error.shape[:-1], len(STAKES), error.shape[-1]))
        self._worse.feed(worse(relative(a / self._tolerated, n, b, m), stakes, cap), seconds)
        healthy = np.abs(relative(n / self._margin, n, m, m) - 1)
        best = healthy / (healthy**2 + error**2) * (cap if self._margin > 1 else 1.0)
        stakes = np.concatenate([np.clip(best, 0.0, STAKES[-1])[..., None, :], stakes], axis=-2)
        self._fine.feed(fine(relative(a / self._margin, n, b, m), stakes, cap))
        self._learn(a, n, b, m)

    def _learn(self, a: Array, n: Array, b: Array, m: Array) -> None:
        shown = (relative(a, n, b, m) - 1) ** 2 * (n + m) * n / m
        self._squares = self._squares + shown.sum(axis=-1)
        self._windows += shown.shape[-1]


def relative(a: Array, n: Array, b: Array, m: Array) -> Array:
    """The first mean over that of all; 1 where all values are 0."""
    total = a + b
    return np.asarray(np.where(total > 0, a / n * (n + m) / np.where(total > 0, total, 1.0), 1.0))


def _above(x: Array, stakes: Array, cap: Array) -> Array:
    """Ln of the wealth of each stake after windows (..., n), as (..., J)."""
    _ = cap
    return np.asarray(np.log1p(stakes * (x[..., None, :] - 1)).sum(axis=-1))


def _below(x: Array, stakes: Array, cap: Array) -> Array:
    """The same of the opposite; stakes are shares of the largest, which loses all where x is 1 + `cap`."""
    gained = 1 + stakes * (1 - x[..., None, :]) / cap[..., None, :]
    return np.asarray(np.log(np.maximum(gained, FLOOR)).sum(axis=-1))
