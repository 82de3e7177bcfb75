"""One number per metric, arm and minute: what Argo Rollouts, Flagger and Kayenta see of the traffic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.canary_simulation.deciders import Times
from benchmarks.canary_simulation.samples import Arm, Array, Grid, Look, Samples

LOOKS = 6
"""In a minute."""
GRID = Grid(low=0.002, ratio=1.02, bins=520)
"""Fine enough that a quantile is exact within 1 %."""
METRICS = ("errors", "ttft", "itl", "judge")


@dataclass(frozen=True)
class ArmMinute:
    """One arm in one minute; arrays of (deliveries,), NaN where nothing was seen."""

    errors: Array
    """Share of requests."""
    ttft: Array
    """95th percentile in seconds, as of `itl`."""
    itl: Array
    ttft_p99: Array
    judge: Array
    """Mean score."""


@dataclass(frozen=True)
class Minute:
    """One minute of many deliveries."""

    seconds: float
    """At its end, since the canary got traffic."""
    last: bool
    """Whether the schedule ends here."""
    canary: ArmMinute
    baseline: ArmMinute
    """Part of the stable arm, as large as the canary: what Kayenta asks for as its control."""
    stable: ArmMinute


class MinuteDecider(Times, ABC):
    """A judge that reads one number per metric and minute."""

    @abstractmethod
    def feed_minute(self, minute: Minute) -> None:
        """See one more minute."""


class PerMinute:
    """Makes minutes of looks, once for all judges that read them."""

    def __init__(self, deciders: Sequence[MinuteDecider], looks: int) -> None:
        self.deciders = tuple(deciders)
        self._looks = looks
        self._arms = [_Sums() for _ in range(3)]

    def feed(self, look: Look) -> None:
        """See one more look; every sixth one makes a minute."""
        canary, baseline, stable = self._arms
        canary.add(look.canary, look.canary.requests.shape[1], look.canary_scores)
        baseline.add(look.stable, baseline_pods(look), look.stable_scores)
        stable.add(look.stable, look.stable.requests.shape[1], look.stable_scores)
        if (look.index + 1) % LOOKS:
            return
        ends = look.index + 1 == self._looks
        minute = Minute(look.seconds, ends, *(sums.read() for sums in self._arms))
        self._arms = [_Sums() for _ in range(3)]
        for decider in self.deciders:
            decider.feed_minute(minute)


def baseline_pods(look: Look) -> int:
    """How many stable pods together get about as much traffic as the canary."""
    pods = look.stable.requests.shape[1]
    return int(min(max(round(pods * look.share / (1 - look.share)), 1), pods))


class _Sums:
    def __init__(self) -> None:
        self._requests = self._errors = self._score_sum = np.zeros(1)
        self._ttft = self._itl = np.zeros((1, GRID.bins))
        self._scores = 0

    def add(self, arm: Arm, pods: int, scores: Array) -> None:
        self._requests = self._requests + arm.requests[:, :pods].sum(axis=1)
        self._errors = self._errors + arm.errors[:, :pods].sum(axis=1)
        self._ttft = self._ttft + _first(arm.ttft, pods).counts(GRID)
        self._itl = self._itl + _first(arm.itl, pods).counts(GRID)
        self._score_sum = self._score_sum + scores.sum(axis=1)
        self._scores += scores.shape[1]

    def read(self) -> ArmMinute:
        with np.errstate(invalid="ignore", divide="ignore"):
            return ArmMinute(
                errors=self._errors / self._requests,
                ttft=quantile(self._ttft, 0.95),
                itl=quantile(self._itl, 0.95),
                ttft_p99=quantile(self._ttft, 0.99),
                judge=self._score_sum / self._scores if self._scores else np.full(self._requests.shape, np.nan),
            )


def _first(samples: Samples, pods: int) -> Samples:
    if pods == samples.pods:
        return samples
    chosen = samples.owner % samples.pods < pods
    return Samples(samples.log_seconds[chosen], samples.owner[chosen], samples.deliveries, samples.pods)


def quantile(counts: Array, share: float) -> Array:
    """Quantile in seconds of counts (deliveries, bins), linear within a bin; NaN when nothing was counted."""
    reached = np.cumsum(counts, axis=1)
    wanted = share * reached[:, -1]
    found = np.minimum((reached < wanted[:, None]).sum(axis=1), counts.shape[1] - 1)
    rows = np.arange(len(counts))
    inside = counts[rows, found]
    part = (wanted - reached[rows, found] + inside) / np.maximum(inside, 1)
    log_upper = np.log(GRID.low) + np.log(GRID.ratio) * found
    seconds = np.exp(log_upper + np.log(GRID.ratio) * (part - 1))
    return np.where(reached[:, -1] > 0, seconds, np.nan)
