"""Asks whether a share that somebody counts in Prometheus is worse on the canary: answers with a thumb down, tool calls
that fail, answers that are cut for their length, requests that wait in the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from gates.analyses.base import Conditions, MetricTest
from gates.analyses.errors import BadShareTest, expected_failures
from gates.analyses.queries import BothArmsGate, QuerySource, Selector, Window, nothing_of
from gates.evidence.batch import ArmName, Batch, PodTrials
from gates.model import ArmKey, NoData, Sample
from gates.stats.e_process import Array
from gates.traffic import Expected, Flow
from tidegate.core.model import SpecConflict
from tidegate.core.units import PercentagePoints


class RatioGate(BothArmsGate):
    """The canary's share of trials that end badly may exceed the stable arm's by `max_increase` at most."""

    name = "ratio"
    scale = "points"
    least = "min_trials"
    margin = "max_increase"
    holds = "ratios"
    presets: ClassVar = {
        "vllm-queue-time": {
            "trials": "vllm:request_queue_time_seconds_count{{ARM}}",
            # The lowest edge of vLLM's histogram: what waits less is not told apart.
            "good": 'vllm:request_queue_time_seconds_bucket{le="0.3",{ARM}}',
            "max_increase": "5pp",
        },
        "vllm-truncated": {
            "trials": "vllm:request_success_total{{ARM}}",
            "events": 'vllm:request_success_total{finished_reason="length",{ARM}}',
            "max_increase": "5pp",
            "usual": 0.1,
        },
        "thumbs-down": {
            "trials": "chat_ratings_total{{ARM}}",
            "events": 'chat_ratings_total{rating="down",{ARM}}',
            "max_increase": "5pp",
            "per_request": 0.05,
            "usual": 0.1,
        },
        "retries": {
            "trials": "chat_requests_total{{ARM}}",
            "events": 'chat_requests_total{retry="true",{ARM}}',
            "max_increase": "2pp",
            "usual": 0.05,
        },
        "tool-call-failures": {
            "trials": "chat_tool_calls_total{{ARM}}",
            "events": 'chat_tool_calls_total{outcome="error",{ARM}}',
            "max_increase": "2pp",
            "per_request": 0.2,
            "usual": 0.05,
        },
    }

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
        yield from super().contradictions()

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

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        yield 1, TrialsTest(conditions.gate, self, temper=conditions.temper)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """As of requests that fail, with the gate's own rate of trials and usual share."""
        usual = expected.assumed.model_copy(update={"error_rate": self.usual})
        trials = expected._replace(arrivals=expected.arrivals.times(self.per_request), assumed=usual)
        yield expected_failures(self.max_increase, self.tolerance, trials, worse)


class TrialsTest(BadShareTest):
    """Trials that the gate's own counters counted; batches have them under its name."""

    sample = "trials"
    does, events = "has", "events"

    def trials(self, batch: Batch) -> Sequence[PodTrials]:
        self.missing = batch.missing.get(self.kind, "")
        return batch.ratios.get(self.kind, ())
