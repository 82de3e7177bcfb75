"""The fixed-sample oracle: it knows what regressed and by how much, chooses its sample in advance, looks once.

For each moment it is the share of regressed deliveries in which one look at that moment, at the level that a gate
of four metrics leaves to each (alpha / 4), sees the regression. Its time is the first moment with 80 %. It may
choose the best of several tests, and where the tail regressed it knows the load, hence the true quantiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import norm

from benchmarks.canary_simulation.fixed_horizon import (
    ALPHA,
    Moments,
    StratifiedZ,
    above,
    errors,
    scores,
    times,
)
from benchmarks.canary_simulation.load import LOOK_SECONDS
from benchmarks.canary_simulation.minutes import METRICS
from benchmarks.canary_simulation.samples import Look
from benchmarks.canary_simulation.workloads import Regression, Traffic, ttft_quantile
from tidegate.core.model import Value

POWER = 0.8
CRITICAL = float(norm.isf(ALPHA / len(METRICS)))
Read = Callable[[Look], Moments]


def _ttft(look: Look) -> Moments:
    return times(look.canary.ttft, look.stable.ttft)


def _ttft_above(share: float, queued: float) -> Read:
    quantile = ttft_quantile(share, queued)
    return lambda look: above(look.canary.ttft, look.stable.ttft, look.log_load + quantile)


def tests_for(regression: Regression, traffic: Traffic) -> Mapping[str, Read]:
    """The tests that an oracle may choose from, by what regressed."""
    if regression.error_factor != 1 or regression.error_added:
        return {"error rate": errors}
    if regression.judge_drop:
        return {"mean score": scores}
    slower = (0.9, 0.95, 0.99, 0.995)
    tails = {f"share above p{100 * share:g}": _ttft_above(share, traffic.queued) for share in slower}
    return {"mean of ln TTFT": _ttft, **tails}


class Power(Value):
    """What one test saw at each look, added up over deliveries."""

    deliveries: int
    seen: tuple[int, ...]
    """In how many deliveries one look at that moment sees the regression."""
    z_sum: tuple[float, ...]

    def plus(self, other: Power) -> Power:
        """Of both chunks together."""
        return Power(
            deliveries=self.deliveries + other.deliveries,
            seen=tuple(map(sum, zip(self.seen, other.seen, strict=True))),
            z_sum=tuple(map(sum, zip(self.z_sum, other.z_sum, strict=True))),
        )

    def seconds(self, onset_seconds: float) -> float:
        """Since the onset, when one look sees the regression with 80 % power."""
        powerful = np.flatnonzero(np.asarray(self.seen) >= POWER * self.deliveries)
        if powerful.size:
            return float((powerful[0] + 1) * LOOK_SECONDS - onset_seconds)
        # Beyond the run: the mean of z grows as the square root of time.
        wanted = CRITICAL + float(norm.ppf(POWER))
        reached = self.z_sum[-1] / max(self.deliveries, 1)
        return float((len(self.seen) * LOOK_SECONDS - onset_seconds) * (wanted / max(reached, 1e-3)) ** 2)


class Oracle:
    """Power of one look, for each moment at which it could be, over one chunk of deliveries."""

    def __init__(self, regression: Regression, traffic: Traffic, deliveries: int) -> None:
        self._tests = tests_for(regression, traffic)
        self._onset, self._deliveries = regression.onset_seconds, deliveries
        self._seen = {name: np.zeros(traffic.looks, dtype=np.int64) for name in self._tests}
        self._z_sum = {name: np.zeros(traffic.looks) for name in self._tests}
        self._z = {name: StratifiedZ(deliveries) for name in self._tests}

    def feed(self, look: Look) -> None:
        """See one more look; it knows since when the canary is worse."""
        if look.seconds <= self._onset:
            return
        for name, read in self._tests.items():
            self._z[name].feed(read(look))
            self._seen[name][look.index] += (self._z[name].z > CRITICAL).sum()
            self._z_sum[name][look.index] += self._z[name].z.sum()

    def power(self) -> Mapping[str, Power]:
        """By test."""
        return {
            name: Power(deliveries=self._deliveries, seen=seen.tolist(), z_sum=self._z_sum[name].tolist())
            for name, seen in self._seen.items()
        }
