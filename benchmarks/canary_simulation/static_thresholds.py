"""Thresholds with failure limits, as Argo Rollouts and Flagger count them (read in their sources).

Argo Rollouts (`analysis/analysis.go`): each metric counts for itself; a run has failed once a metric has more
failed measurements than its `failureLimit` (default 0), and is in error after more than four measurements in a
row without a result. Flagger (`pkg/controller/scheduler.go`): one counter for all metrics, never decremented; a
check fails with its first failing or missing metric, and at the threshold the canary is rolled back at the next
tick. Both promote when the schedule is over. Neither has statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.canary_simulation.deciders import NEVER
from benchmarks.canary_simulation.minutes import ArmMinute, Minute, MinuteDecider
from benchmarks.canary_simulation.samples import Array

CONSECUTIVE_ERROR_LIMIT = 4
"""Argo Rollouts' default."""
TICK_SECONDS = 60.0
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Limits:
    """What an operator writes by hand from the stable version's history."""

    errors: float
    ttft: float
    ttft_p99: float
    itl: float
    judge: float

    @classmethod
    def from_history(cls, minutes: Sequence[ArmMinute]) -> Limits:
        """A quarter above the long-run latency, twice the usual errors, 0.05 below the usual score."""

        def usual(metric: str) -> float:
            return float(np.nanmean([getattr(minute, metric) for minute in minutes]))

        return cls(
            errors=0.01,
            ttft=1.25 * usual("ttft"),
            ttft_p99=1.25 * usual("ttft_p99"),
            itl=1.25 * usual("itl"),
            judge=usual("judge") - 0.05,
        )


class History(MinuteDecider):
    """Keeps what the stable arm did, and decides nothing."""

    def __init__(self, name: str, deliveries: int) -> None:
        super().__init__(name, deliveries)
        self.minutes: list[ArmMinute] = []

    def feed_minute(self, minute: Minute) -> None:
        """Keep one more minute."""
        self.minutes.append(minute.stable)


Measure = Callable[[Minute], Mapping[str, tuple[Array, Array]]]
"""For each metric the value and what it must not exceed."""


def canary_alone(limits: Limits) -> Measure:
    """The canary's own numbers against fixed limits."""

    def measure(minute: Minute) -> Mapping[str, tuple[Array, Array]]:
        seen, same = minute.canary, np.ones_like(minute.canary.errors)
        return {
            "errors": (seen.errors, limits.errors * same),
            "ttft": (seen.ttft, limits.ttft * same),
            "itl": (seen.itl, limits.itl * same),
            "judge": (-seen.judge, -limits.judge * same),
        }

    return measure


def against_stable(minute: Minute) -> Mapping[str, tuple[Array, Array]]:
    """The canary against the stable arm of the same minute, with the same tolerances."""
    canary, stable = minute.canary, minute.stable
    return {
        "errors": (canary.errors, np.maximum(2 * stable.errors, 0.01)),
        "ttft": (canary.ttft, 1.25 * stable.ttft),
        "itl": (canary.itl, 1.25 * stable.itl),
        "judge": (-canary.judge, 0.05 - stable.judge),
    }


def flagger_metrics(limits: Limits) -> Measure:
    """Flagger's built-in pair, success rate and 99th percentile of duration, with ITL and judge as custom metrics."""
    alone = canary_alone(limits)

    def measure(minute: Minute) -> Mapping[str, tuple[Array, Array]]:
        same = np.ones_like(minute.canary.errors)
        return {**alone(minute), "ttft": (minute.canary.ttft_p99, limits.ttft_p99 * same)}

    return measure


class ArgoRollouts(MinuteDecider):
    """A background AnalysisRun with one measurement of every metric a minute."""

    def __init__(self, name: str, deliveries: int, measure: Measure, failure_limit: int) -> None:
        super().__init__(name, deliveries)
        self._measure, self._limit = measure, failure_limit
        self._failed: dict[str, NDArray[np.int64]] = {}
        self._empty: dict[str, NDArray[np.int64]] = {}

    def feed_minute(self, minute: Minute) -> None:
        """Measure once; roll back what is beyond a limit, promote the rest at the end."""
        for metric, (value, bound) in self._measure(minute).items():
            none = np.zeros(value.shape, dtype=np.int64)
            missing, failed = _judge(value, bound)
            self._failed[metric] = self._failed.get(metric, none) + failed
            self._empty[metric] = np.where(missing, self._empty.get(metric, none) + 1, 0)
            over = (self._failed[metric] > self._limit) | (self._empty[metric] > CONSECUTIVE_ERROR_LIMIT)
            self.roll_back(over, minute.seconds)
        if minute.last:
            self.accept(self.undecided, minute.seconds)


class Flagger(MinuteDecider):
    """A Canary with an analysis interval of a minute."""

    def __init__(self, name: str, deliveries: int, measure: Measure, threshold: int) -> None:
        super().__init__(name, deliveries)
        self._measure, self._threshold = measure, threshold
        self._failed_checks = np.zeros(deliveries, dtype=np.int64)
        self._due = np.full(deliveries, NEVER)

    def feed_minute(self, minute: Minute) -> None:
        """Check once; what reached the threshold at the tick before goes back now."""
        self.roll_back(self._due <= minute.seconds, minute.seconds)
        verdicts = [_judge(value, bound) for value, bound in self._measure(minute).values()]
        self._failed_checks += np.any([missing | failed for missing, failed in verdicts], axis=0)
        reached = (self._failed_checks >= self._threshold) & np.isinf(self._due)
        self._due[reached] = minute.seconds + TICK_SECONDS
        if minute.last:
            self.roll_back(np.isfinite(self._due), minute.seconds + TICK_SECONDS)
            self.accept(self.undecided, minute.seconds)


def _judge(value: Array, bound: Array) -> tuple[Flags, Flags]:
    missing = np.isnan(value) | np.isnan(bound)
    return missing, ~missing & (value > bound)
