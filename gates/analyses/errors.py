"""The errors gate: whether the canary fails more requests than stable, and whether mirrored copies reach it at all.

5xx, missing answers and cut streams are one kind of failure, 4xx another. Users do not know which arm
they reach, so both arms get the same share of bad requests: more 4xx on the canary is its own doing.

A mirror that is switched on and copies nothing looks like a canary without a single error. Nothing that
was seen of mirrored traffic may pass before most of it is proven to have arrived. Both arms are scraped at
different moments, so a window has up to a scrape interval more of one than of the other. What is compared is what
both have counted since the stage began: there the difference stays an interval's, while window by window the smaller
of two counts would lose a part of the copies again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from gates.analyses.base import BadShareTest, Conditions, ExpectedFlow, MetricTest, StageUse, TestedGate, pods_of
from gates.analyses.failures import expected_failures
from gates.evidence.batch import ArmName, Batch, PodEvidence, PodTrials, Source
from gates.model import Sample
from gates.stats.binary import ShareProcess
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess
from gates.traffic import (
    MOST_PAIRS,
    ArrivalRates,
    Assumptions,
    EvenDraws,
    Flow,
)
from tidegate.core.metrics import MetricSignal
from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.units import PercentagePoints


class ErrorsGate(SpecModel):
    """The canary's share of failed requests may exceed the stable arm's by `max_increase` at most."""

    example = "{max_increase: 0.5pp}"
    max_increase: PercentagePoints = Field(default=0.005, validate_default=False)
    """Difference of two shares; 0.005 is 0.5 percentage points. The gate passes once the canary is within it."""
    tolerance: PercentagePoints = Field(default=0.0, validate_default=False)
    """The gate fails once the canary is proven to fail more often than stable by more than this."""
    min_requests: Sample = 40
    """On the canary before a pass, whatever became of them."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_increase:
            yield SpecConflict(
                ("tolerance",), f"{self.tolerance * 100:g}pp", f"less than max_increase, {self.max_increase * 100:g}pp"
            )


Kind = Literal["failed", "refused"]


class FailureTest(BadShareTest):
    """Requests of both arms in the same scrapes."""

    def __init__(self, gate: ErrorsGate, kind: Kind, *, temper: bool) -> None:
        """`failed` and `refused` are two questions: a canary that refuses must not hide behind a stable that fails."""
        super().__init__(
            kind,
            needed=gate.min_requests,
            max_increase=gate.max_increase,
            tolerance=gate.tolerance,
            temper=temper,
        )
        self.worse = f"that it {'fails' if kind == 'failed' else 'refuses'} more often than tolerated"
        self.does, self.events = kind, f"{kind}_requests"

    def trials(self, batch: Batch) -> Sequence[PodTrials]:
        return [
            PodTrials(arm=pod.arm, pod=pod.pod, trials=pod.requests, events=self._bad_of(pod)) for pod in batch.arms
        ]

    def why_missing(self, batch: Batch) -> str:
        return batch.missing.get("requests", "")

    def _bad_of(self, pod: PodEvidence) -> int:
        return pod.errors if self.kind == "failed" else pod.refused


class PairedFailureTest(MetricTest):
    """Prompts that went to both arms: how often only one of them answered."""

    process: PairedScoresProcess
    worse = "that it fails more often than tolerated"
    sample = "pairs"

    def __init__(self, gate: ErrorsGate) -> None:
        """Settings as the spec has them."""
        super().__init__("failed", needed=gate.min_requests)
        self._gate = gate
        self.process = PairedScoresProcess(max_drop=gate.max_increase, tolerance=gate.tolerance)
        self._pairs = self._canary = self._stable = 0

    def take(self, batch: Batch, seconds: float) -> None:
        failed = [(pair.canary is None, pair.stable is None) for pair in batch.pairs]
        self._pairs += len(failed)
        self._canary += sum(canary for canary, _ in failed)
        self._stable += sum(stable for _, stable in failed)
        # Where nobody answered, the way to both may be broken: that says nothing of either.
        told = [float(canary) - float(stable) for canary, stable in failed if not (canary and stable)]
        if told:
            self.process.feed(np.asarray(told), seconds)

    def restart(self) -> None:
        self._pairs = self._canary = self._stable = 0
        self.process.restart_acceptance()

    @property
    def shows_nothing(self) -> str:
        return "stable never answered" if self._stable == self._pairs else ""

    @property
    def seen(self) -> int:
        return self._pairs

    def describe(self) -> str:
        if not self._pairs:
            return "no pair was sent"
        return (
            f"of {self._pairs:,} prompts that went to both arms the canary left {self._canary:,} without an answer, "
            f"stable {self._stable:,} (allowed {self._gate.max_increase * 100:+g} pp)"
        )

    def numbers(self) -> Mapping[str, float]:
        counts = {"pairs": self._pairs, "canary_failed_requests": self._canary, "stable_failed_requests": self._stable}
        return {name: float(count) for name, count in counts.items()}


ARRIVES = 0.8
"""The least share of the copies that must arrive; some are always under way when it is counted."""


class MirrorTest(MetricTest):
    """Of stable's requests a known share is copied; asks how many copies ended on the canary."""

    process: ShareProcess
    worse = "that too few copies arrive"
    fine = "that the copies arrive"

    def __init__(self, share: float) -> None:
        """`share` is what is mirrored of user traffic, 0 to 1."""
        super().__init__("mirror", needed=0)
        least, most = ARRIVES * share, min(share, 0.999)
        self._share = share
        self.process = ShareProcess(least, above=(least + (most - least) * 0.5, most))
        self._arrived = self._requests = 0

    def take(self, batch: Batch, seconds: float) -> None:
        requests = sum(pod.requests for pod in pods_of(batch, ArmName.STABLE))
        arrived = sum(pod.requests for pod in pods_of(batch, ArmName.CANARY))
        copies, missing = self._copies, self._requests - self._copies
        self._requests += requests
        self._arrived += arrived
        # What was missing may have come by now: then fewer are missing than before.
        more, fewer = self._copies - copies, self._requests - self._copies - missing
        self.process.feed(np.asarray(more), np.asarray(fewer), seconds)

    def restart(self) -> None:
        self._arrived = self._requests = 0
        self.process.restart_acceptance()

    @property
    def _copies(self) -> int:
        """No more than there were requests to copy: what is beyond was asked by somebody else, or is shown early."""
        return min(self._arrived, self._requests)

    @property
    def log_worse(self) -> float:
        # A mirror that does not work is no fault of the version: it can keep it from passing, not fail it.
        return 0.0

    @property
    def seen(self) -> int:
        return self._requests

    def describe(self) -> str:
        if not self._requests:
            return "no user request to copy"
        return f"{self._copies:,} copies of {self._requests:,} requests arrived ({self._share:.0%} are mirrored)"

    def numbers(self) -> Mapping[str, float]:
        return {"mirrored_requests": float(self._copies), "stable_requests": float(self._requests)}


def expected_pairs_of_failures(gate: ErrorsGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions) -> Flow:
    """Either arm leaves its answer out by itself; each canary a share `worse` more often."""
    process = PairedScoresProcess(max_drop=gate.max_increase, tolerance=gate.tolerance, leading=worse.shape)
    draws = EvenDraws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, second = draws.after(seconds)
        canary = first < np.minimum(assumed.error_rate + worse, 1.0)[:, None]
        process.feed(canary.astype(np.float64) - (second < assumed.error_rate), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


FAILED_PART = 2 / 3
"""Of the gate's share of the budget; the rest is for refused requests."""


class ErrorsKind(TestedGate[ErrorsGate]):
    """How many more of the canary's requests fail."""

    name = "errors"
    spec = settings = ErrorsGate
    stages = (
        # Mirrored requests: no user saw their answers, so only the proxy can count them.
        StageUse("shadow", ("proxy",), by_default=True),
        # Of failures each sees some that the other does not.
        StageUse("canary", ("proxy", "users"), by_default=True),
    )
    from_batches = True
    from_pairs = True
    scale = "points"
    sample = "min_requests"
    margin = ("max_increase", 0.5)

    def signals(self, settings: ErrorsGate) -> Mapping[Loc, MetricSignal]:
        """What became of requests."""
        _ = settings
        return {(): MetricSignal.REQUESTS}

    def tests(self, settings: ErrorsGate, source: Source, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """Failed and refused requests apart; copies of requests must be proven to arrive."""
        if source == "probe":
            yield 1, PairedFailureTest(settings)
            return
        yield FAILED_PART, FailureTest(settings, "failed", temper=conditions.temper)
        yield 1 - FAILED_PART, FailureTest(settings, "refused", temper=conditions.temper)
        if conditions.mirrored is not None:
            yield 0, MirrorTest(conditions.mirrored)

    def flows(self, settings: ErrorsGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        if paired:
            yield partial(expected_pairs_of_failures, settings)
        else:
            yield partial(expected_failures, settings.max_increase, settings.tolerance, temper=temper)
