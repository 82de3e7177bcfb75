"""The fixed-sample oracle of acceptance: it knows what is true, chooses its sample in advance, and looks once.

A good version is accepted when each of its four metrics is shown to be within its margin, each with the chance of
an error that a gate has; so it is with the oracle. It knows stable's error rate and the quantiles of the moment, which
makes its counts of the canary alone exact tests; scores it compares as the gate does, in pairs, but knows their spread.
Its time is the first moment at which one look accepts 80 % of good versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy.stats import binom, norm, poisson

from benchmarks.canary_simulation.load import LOOK_SECONDS
from benchmarks.canary_simulation.oracle import POWER
from benchmarks.canary_simulation.ours import BETA, Margins
from benchmarks.canary_simulation.samples import Array, Look
from benchmarks.canary_simulation.workloads import (
    ITL_LOAD,
    ITL_LOG_MEDIAN,
    ITL_SD,
    JUDGE_CONCENTRATION,
    JUDGE_MEAN,
    Traffic,
    ttft_quantile,
)
from tidegate.core.model import Value

QUANTILE = 0.95
ALL = "all four"


class Acceptance(Value):
    """How many deliveries one look at each moment accepts, added up over deliveries."""

    deliveries: int
    accepted: tuple[int, ...]

    def plus(self, other: Acceptance) -> Acceptance:
        """Of both chunks together."""
        return Acceptance(
            deliveries=self.deliveries + other.deliveries,
            accepted=tuple(map(sum, zip(self.accepted, other.accepted, strict=True))),
        )

    @property
    def seconds(self) -> float:
        """When one look accepts with 80 % power; infinity for never."""
        powerful = np.flatnonzero(np.asarray(self.accepted) >= POWER * self.deliveries)
        return float((powerful[0] + 1) * LOOK_SECONDS) if powerful.size else np.inf


class AcceptanceOracle:
    """Of each metric and of all four, over one chunk of deliveries of good versions."""

    def __init__(self, traffic: Traffic, deliveries: int) -> None:
        self._margins, self._deliveries = Margins(), deliveries
        self._ttft = ttft_quantile(QUANTILE, traffic.queued) + np.log1p(self._margins.ttft)
        self._itl = ITL_LOG_MEDIAN + ITL_SD * norm.ppf(QUANTILE) + np.log1p(self._margins.itl)
        self._failed, self._failures_at_margin = np.zeros(deliveries), np.zeros(deliveries)
        self._above = {metric: np.zeros((2, deliveries)) for metric in ("ttft", "itl")}
        """How many exceeded the margin, and of how many."""
        self._gained, self._pairs = np.zeros(deliveries), 0
        self._accepted = {name: np.zeros(traffic.looks, dtype=np.int64) for name in (*self._names(), ALL)}

    @staticmethod
    def _names() -> Iterator[str]:
        yield from ("errors", "ttft", "itl", "judge")

    def feed(self, look: Look) -> None:
        """See one more look."""
        canary = look.canary
        requests = canary.requests.sum(axis=1)
        self._failed += canary.errors.sum(axis=1)
        self._failures_at_margin += requests * (look.error_rate + self._margins.errors)
        answered = requests - canary.errors.sum(axis=1)
        self._above["ttft"] += [canary.ttft.above(look.log_load + self._ttft), answered]
        self._above["itl"] += [canary.itl.above(ITL_LOAD * look.log_load + self._itl), answered]
        self._gained += (self._margins.judge - look.stable_scores + look.canary_scores).sum(axis=1)
        self._pairs += look.stable_scores.shape[1]
        fine = dict(zip(self._names(), self._fine(), strict=True))
        fine[ALL] = np.logical_and.reduce(list(fine.values()))
        for name, each in fine.items():
            self._accepted[name][look.index] += each.sum()

    def _fine(self) -> Iterator[Array]:
        yield poisson.cdf(self._failed, self._failures_at_margin) <= BETA
        for above, answered in self._above.values():
            yield binom.cdf(above, answered, 1 - QUANTILE) <= BETA
        variance = 2 * JUDGE_MEAN * (1 - JUDGE_MEAN) / (JUDGE_CONCENTRATION + 1)
        yield self._gained >= norm.isf(BETA) * np.sqrt(variance * max(self._pairs, 1))

    def acceptance(self) -> Mapping[str, Acceptance]:
        """By metric, and of all four."""
        return {
            name: Acceptance(deliveries=self._deliveries, accepted=accepted.tolist())
            for name, accepted in self._accepted.items()
        }
