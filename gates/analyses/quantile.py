"""Asks whether a quantile of any histogram in Prometheus is higher on the canary: queue time, the time that a gateway
saw, the time of a tool, tokens an answer. The same test as of latency, on the histogram's own edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from gates.analyses.base import Conditions, MetricTest
from gates.analyses.latency import HistogramTest, PodTimes, expected_times, margin_of
from gates.analyses.queries import BothArmsGate, QuerySource, Selector, Window, nothing_of
from gates.evidence.batch import ArmName, Batch, PodHistogram
from gates.evidence.names import BUCKET, BUCKET_EDGE
from gates.model import ArmKey, NoData, Sample
from gates.stats.e_process import Array
from gates.traffic import Expected, Flow
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

    name = "quantile"
    scale = "change"
    least = "min_observations"
    margin = "max_increase"
    worst_regression = 4.0
    holds = "histograms"
    presets: ClassVar = {
        # A request's own mean: one draw a request.
        "vllm-time-per-token": {
            "buckets": "vllm:request_time_per_output_token_seconds_bucket{{ARM}}",
            "unit": "seconds",
        },
        "vllm-decode-time": {
            "buckets": "vllm:request_decode_time_seconds_bucket{{ARM}}",
            "unit": "seconds",
            "max_increase": "50%",
        },
    }

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
        yield from super().contradictions()

    def of_arm(
        self, queries: QuerySource, arm: ArmName, key: ArmKey, window: Window
    ) -> tuple[PodHistogram, ...] | NoData:
        found = queries.distributed(self.buckets, key, window)
        pods = tuple(PodHistogram(arm=arm, pod=pod, buckets=buckets) for pod, buckets in found.items())
        return pods or nothing_of(self.buckets, key)

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        yield 1, QuantileTest(self, conditions.gate, temper=conditions.temper)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """As of times, with the gate's own rate."""
        often = expected._replace(arrivals=expected.arrivals.times(self.per_request))
        yield expected_times(margin_of(self), often, worse)


class QuantileTest(HistogramTest):
    """Histograms of both arms over the same windows."""

    worse = "that it is higher than tolerated"
    sample = "observations"

    def __init__(self, gate: QuantileGate, name: str, *, temper: bool) -> None:
        """`name` is that of the gate, under which batches have its histograms."""
        super().__init__(name, margin_of(gate), needed=gate.min_observations, temper=temper)
        self._unit = gate.unit

    def times(self, batch: Batch) -> Sequence[PodTimes]:
        return [(pod.arm, pod.pod, pod.buckets) for pod in batch.histograms.get(self.kind, ())]

    def shown(self, value: float) -> str:
        return f"{value:.3g} {self._unit}" if self._unit else f"{value:.3g}"

    def numbers(self) -> Mapping[str, float]:
        return self.named("", f"_{self._unit}" if self._unit else "")
