"""Asks whether a share that somebody counts in Prometheus is worse on the canary: answers with a thumb down, tool calls
that fail, answers that are cut for their length, requests that wait in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import Field

from gates.analyses.base import BadShareTest, Conditions, ExpectedFlow, MetricTest, StageUse, TestedGate
from gates.analyses.failures import expected_failures
from gates.analyses.queries.asked import BothArmsGate, QuerySource, Selector, Window, nothing_of
from gates.analyses.queries.presets import RATIOS
from gates.evidence.batch import ArmName, Batch, PodTrials, Source
from gates.model import ArmKey, NoData, Sample
from gates.stats.e_process import Array
from gates.traffic import ArrivalRates, Assumptions, Flow
from tidegate.core.model import SpecConflict
from tidegate.core.units import PercentagePoints


class RatioGate(BothArmsGate):
    """The canary's share of trials that end badly may exceed the stable arm's by `max_increase` at most."""

    holds = "ratios"
    presets: ClassVar = RATIOS

    trials: Selector = Field(default="", validate_default=False)
    """The counter of everything that could end badly, as PromQL selects it: `answers_total{version="{{.version}}"}`."""
    events: Selector | None = None
    """The counter of those that did; they are among the trials."""
    good: Selector | None = None
    """The counter of those that did not, in place of `events`: such as the bucket of a histogram."""
    max_increase: PercentagePoints = Field(default=0.02, validate_default=False)
    """Difference of two shares; 0.02 is 2 percentage points. The gate passes once the canary is within it."""
    tolerance: PercentagePoints = Field(default=0.0, validate_default=False)
    """The gate fails once the canary's share is proven to be higher than stable's by more than this."""
    min_trials: Sample = 40
    """On the canary before a pass."""
    per_request: float = Field(default=1.0, gt=0, le=1000)
    """Trials for each request of a user, for plans: 0.05 where one user in twenty rates an answer."""
    usual: float = Field(default=0.01, ge=0, lt=1)
    """The share of trials that ends badly while nothing is wrong, for plans."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Something to count, and one of two ways to do it; what is tolerated must be allowed."""
        if not self.trials:
            yield SpecConflict(("trials",), "nothing", "the counter of all trials, or a preset")
        if (self.events is None) == (self.good is None):
            yield SpecConflict(("events",), "both or none of events, good", "exactly one of them")
        if self.tolerance >= self.max_increase:
            found, most = f"{self.tolerance * 100:g}pp", f"{self.max_increase * 100:g}pp"
            yield SpecConflict(("tolerance",), found, f"less than max_increase, {most}")

    def of_arm(self, queries: QuerySource, arm: ArmName, key: ArmKey, window: Window) -> tuple[PodTrials, ...] | NoData:
        """As `BothArmsGate`; a pod without a series of events had none."""
        trials = queries.counted(self.trials, key, window)
        if not trials:
            return nothing_of(self.trials, key)
        told = queries.counted(self.good or self.events or "", key, window)
        pods = []
        for pod, count in trials.items():
            each = min(told.get(pod, 0), count)
            pods.append(PodTrials(arm=arm, pod=pod, trials=count, events=count - each if self.good else each))
        return tuple(pods)


class TrialsTest(BadShareTest):
    """Trials that the gate's own counters counted."""

    sample = "trials"
    does, events = "has", "events"

    def __init__(self, gate: RatioGate, name: str, *, temper: bool) -> None:
        """`name` is that of the gate, under which batches have its trials."""
        super().__init__(
            name, needed=gate.min_trials, max_increase=gate.max_increase, tolerance=gate.tolerance, temper=temper
        )

    def trials(self, batch: Batch) -> Sequence[PodTrials]:
        return batch.ratios.get(self.kind, ())

    def why_missing(self, batch: Batch) -> str:
        return batch.missing.get(self.kind, "")


def expected_events(
    gate: RatioGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions, *, temper: bool
) -> Flow:
    """As of requests that fail, with the gate's own rate of trials and usual share."""
    usual = assumed.model_copy(update={"error_rate": gate.usual})
    trials = arrivals.times(gate.per_request)
    return expected_failures(gate.max_increase, gate.tolerance, trials, worse, usual, temper=temper)


class RatioKind(TestedGate[RatioGate]):
    """How much more often something ends badly that a counter in Prometheus counts."""

    name = "ratio"
    spec = settings = RatioGate
    stages = (StageUse("canary", ("proxy",)),)
    usual_sources = ("proxy",)
    from_batches = True
    scale = "points"
    sample = "min_trials"
    margin = ("max_increase", 0.5)

    def needed(self, settings: RatioGate) -> int:
        """As `TestedGate`, in requests of users."""
        return int(np.ceil(settings.min_trials / settings.per_request))

    def tests(self, settings: RatioGate, source: Source, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """One."""
        _ = source
        yield 1, TrialsTest(settings, conditions.gate, temper=conditions.temper)

    def flows(self, settings: RatioGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        _ = paired
        yield partial(expected_events, settings, temper=temper)
