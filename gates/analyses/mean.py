"""Asks whether the mean of something that Prometheus adds up and counts is worse on the canary: tokens an answer, cost
or retries a request, stars a rating; or the mean of what MLflow's scorers say of answers.

Of what one window added up no single value is known, so the test rests on sums and counts alone (`gates.stats.means`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import numpy as np
import scipy
from pydantic import Field

from gates.analyses.assessments import Assessments
from gates.analyses.base import ArmsTest, Conditions, MetricTest
from gates.analyses.queries import BothArmsGate, QuerySource, Selector, Window, nothing_of
from gates.evidence.batch import ArmName, Batch, PodTotal
from gates.model import ArmKey, NoData, Sample
from gates.stats.e_process import Array
from gates.stats.means import ASSUMED_SPREAD, MeanProcess
from gates.traffic import EvenDraws, Expected, Flow
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.units import Percent

FEWEST = 5
"""Observations of either arm in a window that is bet on: of one or two the mean lies anywhere."""


class MeanGate(BothArmsGate):
    """The canary's mean may be worse than that of the concurrent stable arm by `max_change` at most."""

    name = "mean"
    scale = "change"
    least = "min_observations"
    margin = "max_change"
    holds = "totals"
    presets: ClassVar = {
        "vllm-output-tokens": {
            "sum": "vllm:request_generation_tokens_sum{{ARM}}",
            "count": "vllm:request_generation_tokens_count{{ARM}}",
            "unit": "tokens",
            "max_change": "20%",
        },
        "vllm-time-per-token": {
            "sum": "vllm:request_time_per_output_token_seconds_sum{{ARM}}",
            "count": "vllm:request_time_per_output_token_seconds_count{{ARM}}",
            "unit": "seconds",
            "max_change": "20%",
        },
    }

    sum: Selector | None = None
    """The counter that adds values up, as PromQL selects it: `cost_dollars_sum{version="{{.version}}"}`."""
    count: Selector | None = None
    """The counter of those values, of the same programs."""
    assessments: Assessments | None = None
    """In place of both counters: what is said of traces in the MLflow of the delivery."""
    unit: str = Field(default="", max_length=20)
    """Of a value, for people."""
    worse: Literal["higher", "lower"] = "higher"
    """What is bad: a cost that is higher, a rating that is lower."""
    max_change: Percent = Field(default=0.2, gt=0, validate_default=False)
    """Of the stable arm's mean; 0.2 is 20 %. The gate passes once the canary is proven to be worse by less."""
    tolerance: Percent = Field(default=0.05, ge=0, validate_default=False)
    """The spread between pods that is nobody's fault. The gate fails once the canary is proven to be worse by more."""
    min_observations: Sample = 40
    """Of the canary before a pass, however clear the evidence."""
    per_request: float = Field(default=1.0, gt=0, le=1000)
    """Observations for each request of a user, for plans."""
    spread: float = Field(default=ASSUMED_SPREAD, gt=0, le=20)
    """Standard deviation of single values over their mean, for plans."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Both counters or assessments; what is tolerated must be allowed, and nothing drops by more than all."""
        for name in ("sum", "count"):
            counter = getattr(self, name)
            if counter and self.assessments:
                yield SpecConflict((name,), "a counter besides assessments", "one of both")
            if not counter and not self.assessments:
                yield SpecConflict((name,), "nothing", "a counter, a preset, or assessments")
        yield from super().contradictions()
        if self.worse == "lower" and self.max_change >= 1:
            yield SpecConflict(("max_change",), f"{self.max_change:.0%}", "less than 100%, where lower is worse")

    @property
    def asks(self) -> bool:
        return self.assessments is None

    def of_arm(self, queries: QuerySource, arm: ArmName, key: ArmKey, window: Window) -> tuple[PodTotal, ...] | NoData:
        """As `BothArmsGate`; a pod that counts and does not add up says nothing."""
        assert self.sum and self.count, "a gate on assessments asks no Prometheus"
        counts = queries.counted(self.count, key, window)
        totals = queries.summed(self.sum, key, window)
        pods = [
            PodTotal(arm=arm, pod=pod, count=count, total=totals[pod]) for pod, count in counts.items() if pod in totals
        ]
        return tuple(pods) or nothing_of(self.sum if counts else self.count, key)

    def ratio(self, worse: float | Array) -> Array:
        """The canary's mean over stable's when it is worse by that share."""
        return np.asarray(1 + worse if self.worse == "higher" else np.maximum(1 - worse, 0.0))

    def process(self, leading: tuple[int, ...] = ()) -> MeanProcess:
        """What adds up the evidence."""
        tolerated, margin = float(self.ratio(self.tolerance)), float(self.ratio(self.max_change))
        return MeanProcess(tolerated=tolerated, margin=margin, leading=leading)

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        yield 1, MeanTest(self, conditions.gate)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """Means of windows that differ by chance, and the canary's by `worse` on top."""
        rates = expected.arrivals.times(self.per_request)
        window = max(rates.look, FEWEST / rates.canary, FEWEST / rates.stable)
        counts = np.asarray((rates.canary, rates.stable)) * window
        ratios = np.stack([self.ratio(worse), np.ones_like(worse)], axis=-1)
        process, draws = self.process(worse.shape), EvenDraws(1 / window)

        def feed(seconds: float) -> None:
            chance = scipy.special.ndtri(np.stack(draws.after(seconds), axis=-1))
            means = np.maximum(1 + self.spread * chance / np.sqrt(counts), 0.0)
            sums = ratios[:, None, :] * means * counts
            both = np.stack([sums, np.broadcast_to(counts, sums.shape)], axis=-1)
            process.feed(both[..., 0, :], both[..., 1, :], seconds)

        yield Flow(process, feed)


def assessing(settings: Mapping[str, SpecModel]) -> dict[str, Assessments]:
    """Of the gates whose evidence is what was said of traces: which assessments, by gate."""
    return {
        gate: each.assessments for gate, each in settings.items() if isinstance(each, MeanGate) and each.assessments
    }


Totals = dict[ArmName, Array]
"""By arm, [sum, count]."""


class MeanTest(ArmsTest):
    """Sums and counts of both arms over the same windows."""

    sample = "observations"
    process: MeanProcess
    _seen: Totals
    _open: Totals

    def __init__(self, gate: MeanGate, name: str) -> None:
        """`name` is that of the gate, under which batches have its sums."""
        super().__init__(name, needed=gate.min_observations)
        self._gate = gate
        self.worse = f"that it is {gate.worse} than tolerated"
        self.process = gate.process()
        self._seconds = 0.0

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; windows with too few observations are one with the next."""
        self.missing = batch.missing.get(self.kind, "")
        self._seconds += seconds
        for pod in batch.totals.get(self.kind, ()):
            for sums in (self._open, self._seen):
                sums[pod.arm] = sums[pod.arm] + (pod.total, pod.count)
        canary, stable = self._open[ArmName.CANARY], self._open[ArmName.STABLE]
        if not canary[1]:
            # Before the canary has any, stable's past is not what it is compared with.
            self._open[ArmName.STABLE] = np.zeros(2)
        elif min(canary[1], stable[1]) >= FEWEST:
            self.process.feed(canary[None, :], stable[None, :], self._seconds)
            self._open, self._seconds = _none(), 0.0

    def forget(self) -> None:
        """As `MetricTest`; a window that is open is of the traffic before."""
        self._seen, self._open = _none(), _none()

    def count(self, arm: ArmName) -> int:
        return int(self._seen[arm][1])

    def compare(self) -> str:
        canary, stable = self._mean(ArmName.CANARY), self._mean(ArmName.STABLE)
        unit = f" {self._gate.unit}" if self._gate.unit else ""
        change = f"{(canary / stable - 1) * 100:+z.0f} %" if stable else "of nothing no share is told"
        allowed = self._gate.max_change * (100 if self._gate.worse == "higher" else -100)
        both = f"canary's mean is {canary:.3g}{unit} against {stable:.3g}{unit} on stable"
        return f"{both} ({change}, allowed {allowed:+g} %)"

    def numbers(self) -> Mapping[str, float]:
        unit = f"_{self._gate.unit}" if self._gate.unit else ""
        means = {f"{arm}_mean{unit}": self._mean(arm) for arm in ArmName if self.count(arm)}
        counts = {f"{arm}_{self.sample}": float(self.count(arm)) for arm in ArmName}
        return means | counts | {"spread": float(self.process.spread)}

    def _mean(self, arm: ArmName) -> float:
        total, count = self._seen[arm]
        return float(total / count)


def _none() -> Totals:
    return {arm: np.zeros(2) for arm in ArmName}
