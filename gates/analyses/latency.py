"""Asks whether the canary is slower than the stable arm next to it, of requests and of pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from pydantic import Field

from gates.analyses.base import Conditions, ExpectedFlow, MetricTest, StageUse, TestedGate
from gates.analyses.histograms import ArmHistograms, PodSamples, QuantileMargin, expected_times
from gates.evidence.batch import (
    SHORTEST_SECONDS,
    ArmName,
    Batch,
    LatencyMetric,
    PairedReply,
    PodEvidence,
    Source,
    Times,
)
from gates.model import Sample
from gates.stats.paired import PairedTimesProcess
from gates.traffic import expected_pairs_of_times
from tidegate.core.metrics import MetricSignal
from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.units import Percent, Quantile


class LatencyGate(SpecModel):
    """The canary's quantile may exceed that of the concurrent stable arm by `max_increase` at most."""

    example = "{max_increase: 20%}"
    metric: LatencyMetric = LatencyMetric.TTFT
    quantile: Quantile = 0.95
    max_increase: Percent = Field(default=0.2, validate_default=False)
    """Of the stable arm's quantile; 0.2 is 20 %. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, validate_default=False)
    """The spread between pods that is nobody's fault. The gate fails once the canary is proven to be slower by more."""
    min_requests: Sample = 40
    """Answered by the canary before a pass, however clear the evidence; one that failed has no latency."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_increase:
            yield SpecConflict(
                ("tolerance",), f"{self.tolerance:.0%}", f"less than max_increase, {self.max_increase:.0%}"
            )


def as_time(seconds: float) -> str:
    """A latency: `210 ms`, `1.25 s`."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"


def times_of(pod: PodEvidence, metric: LatencyMetric) -> Times:
    """The times that the metric names."""
    return {LatencyMetric.TTFT: pod.ttft, LatencyMetric.ITL: pod.itl, LatencyMetric.E2E: pod.e2e}[metric]


class LatencyTest(MetricTest):
    """Requests of both arms in the same scrapes, as samples or buckets."""

    worse = "that it is slower than tolerated"

    def __init__(self, gate: LatencyGate, *, temper: bool) -> None:
        """Settings as the spec has them."""
        super().__init__(str(gate.metric), needed=gate.min_requests)
        self._gate = gate
        self._arms = ArmHistograms(margin_of(gate), temper=temper)

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; a batch whose buckets do not fit gives no evidence."""
        metric = self._gate.metric
        unfit = self._arms.take([PodSamples(pod.arm, pod.pod, times_of(pod, metric)) for pod in batch.arms], seconds)
        self.missing = unfit or batch.missing.get(self.kind, "")
        self.process = self._arms.process

    def restart(self) -> None:
        """As `MetricTest`; what is described is counted again too, because traffic shares changed."""
        self._arms.restart()

    @property
    def seen(self) -> int:
        return self._arms.seen

    def describe(self) -> str:
        metric, quantile = self._gate.metric.upper(), f"p{self._gate.quantile * 100:g}"
        if nothing := self._arms.nothing_of(metric, self.missing):
            return nothing
        canary, stable = self._arms.quantile(ArmName.CANARY), self._arms.quantile(ArmName.STABLE)
        return (
            f"canary {metric} {quantile} is {as_time(canary)} against {as_time(stable)} on stable "
            f"({(canary / stable - 1) * 100:+z.0f} %, allowed {self._gate.max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        return self._arms.numbers(f"{self._gate.metric}_p{self._gate.quantile * 100:g}", "_seconds", "requests")


def margin_of(gate: LatencyGate) -> QuantileMargin:
    """What is compared of the metric, whichever it is."""
    return QuantileMargin(gate.quantile, gate.max_increase, gate.tolerance)


class PairedLatencyTest(MetricTest):
    """Pairs: the same prompt in both arms at the same moment, so that difficulty and load cancel."""

    process: PairedTimesProcess
    worse = "that it is later than tolerated"
    sample = "pairs"

    def __init__(self, gate: LatencyGate) -> None:
        """Settings as the spec has them; within pairs the margin is of the ratio, not of the quantile."""
        super().__init__(str(gate.metric), needed=gate.min_requests)
        self._gate = gate
        self.process = PairedTimesProcess(max_increase=gate.max_increase, tolerance=gate.tolerance)
        self._times: list[tuple[float, float]] = []

    def take(self, batch: Batch, seconds: float) -> None:
        times = [(_time(pair.canary, self._gate.metric), _time(pair.stable, self._gate.metric)) for pair in batch.pairs]
        known = [(canary, stable) for canary, stable in times if canary and stable]
        self._times = (self._times + known)[-MOST_TIMES:]
        if known:
            logs = np.log(known)
            self.process.feed(logs[:, 0] - logs[:, 1], seconds)

    def restart(self) -> None:
        self._times = []
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return len(self._times)

    def describe(self) -> str:
        metric = self._gate.metric.upper()
        if not self._times:
            return f"no pair has a {metric} on both arms"
        canary, stable, ratio = self._middle()
        change = f"{(ratio - 1) * 100:+z.0f} % within {len(self._times):,} pairs"
        return (
            f"canary {metric} is {as_time(canary)} against {as_time(stable)} on stable in the median, "
            f"{change} (allowed {self._gate.max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        if not self._times:
            return {"pairs": 0.0}
        canary, stable, ratio = self._middle()
        name = f"median_{self._gate.metric}"
        return {
            f"{name}_canary_seconds": canary,
            f"{name}_stable_seconds": stable,
            "median_increase_share": ratio - 1,
            "pairs": float(len(self._times)),
        }

    def _middle(self) -> tuple[float, float, float]:
        times = np.asarray(self._times)
        return float(np.median(times[:, 0])), float(np.median(times[:, 1])), float(np.median(times[:, 0] / times[:, 1]))


MOST_TIMES = 10_000
"""Pairs that are kept for the description; evidence needs none of them."""


def _time(reply: PairedReply | None, metric: LatencyMetric) -> float | None:
    if reply is None:
        return None
    seconds = {LatencyMetric.TTFT: reply.ttft, LatencyMetric.ITL: reply.itl, LatencyMetric.E2E: reply.e2e}[metric]
    return None if seconds is None or seconds < SHORTEST_SECONDS else seconds


class LatencyKind(TestedGate[LatencyGate]):
    """How much longer the canary's requests take."""

    name = "latency"
    spec = settings = LatencyGate
    # Of times users know best.
    stages = (
        StageUse("shadow", ("probe",), by_default=True),
        StageUse("canary", ("users",), by_default=True),
    )
    from_batches = True
    from_pairs = True
    scale = "percent"
    sample = "min_requests"
    margin = ("max_increase", 4.0)
    worst_regression = 4.0

    def signals(self, settings: LatencyGate) -> Mapping[Loc, MetricSignal]:
        """The time that it compares."""
        return {("metric",): MetricSignal(str(settings.metric))}

    def tests(
        self, settings: LatencyGate, source: Source, conditions: Conditions
    ) -> Iterator[tuple[float, MetricTest]]:
        """One, of pairs or of requests."""
        if source == "probe":
            yield 1, PairedLatencyTest(settings)
        else:
            yield 1, LatencyTest(settings, temper=conditions.temper)

    def flows(self, settings: LatencyGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        if paired:
            yield partial(expected_pairs_of_times, settings.max_increase, settings.tolerance)
        else:
            yield partial(expected_times, margin_of(settings), temper=temper)
