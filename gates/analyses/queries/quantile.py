"""Asks whether a quantile of any histogram in Prometheus is higher on the canary: queue time, the time that a gateway
saw, the time of a tool, tokens an answer. The same test as of latency, on the histogram's own edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from pydantic import AfterValidator, Field

from gates.analyses.base import Conditions, ExpectedFlow, MetricTest, StageUse, TestedGate
from gates.analyses.histograms import ArmHistograms, PodSamples, QuantileMargin, expected_times
from gates.analyses.queries.asked import BothArmsGate, QuerySource, Selector, Window, nothing_of
from gates.analyses.queries.presets import QUANTILES
from gates.evidence.batch import ArmName, Batch, PodHistogram, Source
from gates.evidence.conventions import BUCKET, BUCKET_EDGE
from gates.model import ArmKey, NoData, Sample
from gates.stats.e_process import Array
from gates.traffic import ArrivalRates, Assumptions, Flow
from tidegate.core.model import SpecConflict
from tidegate.core.units import Percent, Quantile


def _histogram(selector: str) -> str:
    name, _, labels = selector.partition("{")
    if selector and not name.endswith(BUCKET):
        raise ValueError(f"the {BUCKET} series of a classic histogram")
    if f"{BUCKET_EDGE}=" in labels.replace(" ", ""):
        raise ValueError(f"all buckets, without a label {BUCKET_EDGE}")
    return selector


class QuantileGate(BothArmsGate):
    """The canary's quantile may exceed that of the concurrent stable arm by `max_increase` at most."""

    holds = "histograms"
    presets: ClassVar = QUANTILES

    buckets: Annotated[Selector, AfterValidator(_histogram)] = Field(default="", validate_default=False)
    """The buckets of a histogram, as PromQL selects them: `queue_seconds_bucket{version="{{.version}}"}`."""
    unit: str = Field(default="", max_length=20)
    """Of its edges, for people."""
    quantile: Quantile = 0.95
    max_increase: Percent = Field(default=0.2, validate_default=False)
    """Of the stable arm's quantile; 0.2 is 20 %. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, validate_default=False)
    """The spread between pods that is nobody's fault. The gate fails once the canary is proven to be higher by more."""
    min_observations: Sample = 40
    """Of the canary before a pass, however clear the evidence."""
    per_request: float = Field(default=1.0, gt=0, le=1000)
    """Observations for each request of a user, for plans."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Something to read; what is tolerated must be allowed."""
        if not self.buckets:
            yield SpecConflict(("buckets",), "nothing", "the buckets of a histogram, or a preset")
        if self.tolerance >= self.max_increase:
            expected = f"less than max_increase, {self.max_increase:.0%}"
            yield SpecConflict(("tolerance",), f"{self.tolerance:.0%}", expected)

    def of_arm(
        self, queries: QuerySource, arm: ArmName, key: ArmKey, window: Window
    ) -> tuple[PodHistogram, ...] | NoData:
        """As `BothArmsGate`."""
        found = queries.distributed(self.buckets, key, window)
        pods = tuple(PodHistogram(arm=arm, pod=pod, buckets=buckets) for pod, buckets in found.items())
        return pods or nothing_of(self.buckets, key)

    @property
    def margin(self) -> QuantileMargin:
        """What is compared."""
        return QuantileMargin(self.quantile, self.max_increase, self.tolerance)


class QuantileTest(MetricTest):
    """Histograms of both arms over the same windows."""

    worse = "that it is higher than tolerated"
    sample = "observations"

    def __init__(self, gate: QuantileGate, name: str, *, temper: bool) -> None:
        """`name` is that of the gate, under which batches have its histograms."""
        super().__init__(name, needed=gate.min_observations)
        self._gate = gate
        self._arms = ArmHistograms(gate.margin, temper=temper)

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; a batch whose buckets do not fit gives no evidence."""
        pods = batch.histograms.get(self.kind, ())
        unfit = self._arms.take([PodSamples(pod.arm, pod.pod, pod.buckets) for pod in pods], seconds)
        self.missing = unfit or batch.missing.get(self.kind, "")
        self.process = self._arms.process

    def restart(self) -> None:
        self._arms.restart()

    @property
    def seen(self) -> int:
        return self._arms.seen

    def describe(self) -> str:
        if nothing := self._arms.nothing_of(self.sample, self.missing):
            return nothing
        canary, stable = self._arms.quantile(ArmName.CANARY), self._arms.quantile(ArmName.STABLE)
        unit = f" {self._gate.unit}" if self._gate.unit else ""
        return (
            f"canary p{self._gate.quantile * 100:g} is {canary:.3g}{unit} against {stable:.3g}{unit} on stable "
            f"({(canary / stable - 1) * 100:+z.0f} %, allowed {self._gate.max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        unit = f"_{self._gate.unit}" if self._gate.unit else ""
        return self._arms.numbers(f"p{self._gate.quantile * 100:g}", unit, self.sample)


def expected_observations(
    gate: QuantileGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions, *, temper: bool
) -> Flow:
    """As of times, with the gate's own rate."""
    return expected_times(gate.margin, arrivals.times(gate.per_request), worse, assumed, temper=temper)


class QuantileKind(TestedGate[QuantileGate]):
    """How much higher a quantile is that a histogram in Prometheus tells."""

    name = "quantile"
    spec = settings = QuantileGate
    stages = (StageUse("canary", ("proxy",)),)
    usual_sources = ("proxy",)
    from_batches = True
    scale = "change"
    sample = "min_observations"
    margin = ("max_increase", 4.0)
    worst_regression = 4.0

    def needed(self, settings: QuantileGate) -> int:
        """As `TestedGate`, in requests of users."""
        return int(np.ceil(settings.min_observations / settings.per_request))

    def tests(
        self, settings: QuantileGate, source: Source, conditions: Conditions
    ) -> Iterator[tuple[float, MetricTest]]:
        """One."""
        _ = source
        yield 1, QuantileTest(settings, conditions.gate, temper=conditions.temper)

    def flows(self, settings: QuantileGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        _ = paired
        yield partial(expected_observations, settings, temper=temper)
