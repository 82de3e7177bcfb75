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

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from pydantic import Field

from gates.analyses.base import BOTH, Conditions, MetricTest, PodCountsTest, StageUse, TestedGate, pods_of
from gates.evidence.batch import ArmName, Batch, PodTrials
from gates.model import Sample
from gates.stats.binary import FailureProcess, ShareProcess
from gates.stats.e_process import Array
from gates.stats.paired import PairedScoresProcess
from gates.traffic import Assumptions, Expected, Flow, WholeCounts, evidence_per_request, expected_draws
from tidegate.core.metrics import MetricSignal
from tidegate.core.model import Loc
from tidegate.core.units import PercentagePoints

FAILED_PART = 2 / 3
"""Of the gate's share of the budget; the rest is for refused requests."""


class ErrorsGate(TestedGate):
    """The canary's share of failed requests may exceed the stable arm's by `max_increase` at most."""

    name = "errors"
    stages = (
        # Mirrored requests: no user saw their answers, so only the proxy can count them.
        StageUse("shadow", ("proxy",), by_default=True),
        # Of failures each sees some that the other does not.
        StageUse("canary", ("proxy", "users"), by_default=True),
    )
    from_batches = True
    from_pairs = True
    scale = "points"
    least = "min_requests"
    margin = "max_increase"
    example = "{max_increase: 0.5pp}"

    max_increase: PercentagePoints = Field(default=0.005, validate_default=False)
    """Difference of two shares; 0.005 is 0.5 percentage points. The gate passes once the canary is within it."""
    tolerance: PercentagePoints = Field(default=0.0, validate_default=False)
    """The gate fails once the canary is proven to fail more often than stable by more than this."""
    min_requests: Sample = 40
    """On the canary before a pass, whatever became of them."""

    def signals(self) -> Mapping[Loc, MetricSignal]:
        return {(): MetricSignal.REQUESTS}

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        """Failed and refused requests apart; copies of requests must be proven to arrive."""
        if conditions.source == "probe":
            yield 1, PairedFailureTest(self)
            return
        # Two questions: a canary that refuses must not hide behind a stable that fails.
        yield FAILED_PART, FailureTest(self, "failed", "errors", temper=conditions.temper)
        yield 1 - FAILED_PART, FailureTest(self, "refused", "refused", temper=conditions.temper)
        if conditions.mirrored is not None:
            yield 0, MirrorTest(conditions.mirrored)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """As `TestedGate`; either arm of a pair leaves its answer out by itself, each canary `worse` more often."""
        if not expected.paired:
            yield expected_failures(self.max_increase, self.tolerance, expected, worse)
            return
        usual = expected.assumed.error_rate
        process = PairedScoresProcess(max_drop=self.max_increase, tolerance=self.tolerance, leading=worse.shape)
        rates = np.minimum(usual + worse, 1.0)[:, None]
        yield expected_draws(
            process, expected.arrivals, lambda first, second: (first < rates).astype(np.float64) - (second < usual)
        )


class BadShareTest(PodCountsTest):
    """Trials of both arms in the same scrapes, and which of them ended badly."""

    process: FailureProcess

    does: str
    """What the canary does with those that did, in a description: `has`, `failed`."""
    events: str
    """Their name among the numbers."""

    def __init__(self, kind: str, gate: TestedGate, *, temper: bool) -> None:
        """`gate` has a margin and a tolerance, which are differences of two shares."""
        super().__init__(kind, needed=getattr(gate, gate.least))
        self._max_increase, tolerance = gate.regression(Assumptions()), gate.tolerated()
        self.process = FailureProcess(max_increase=self._max_increase, tolerance=tolerance, temper=temper)

    @abstractmethod
    def trials(self, batch: Batch) -> Sequence[PodTrials]:
        """Those of a batch, pod by pod."""

    def take(self, batch: Batch, seconds: float) -> None:
        counts = [
            (pod.arm, pod.pod, np.asarray([pod.trials - pod.events, pod.events], dtype=np.float64))
            for pod in self.trials(batch)
            if pod.trials or pod.arm is ArmName.STABLE
        ]
        self.feed(self.process, counts, seconds, bins=2)

    def compare(self) -> str:
        canary, stable = (f"{self._bad(arm):,} of {self.count(arm):,} ({self._share(arm):.1%})" for arm in BOTH)
        increase = self._share(ArmName.CANARY) - self._share(ArmName.STABLE)
        change = f"{increase * 100:+z.1f} pp, allowed {self._max_increase * 100:+g} pp"
        return f"canary {self.does} {canary} against {stable} on stable ({change})"

    @property
    def shows_nothing(self) -> str:
        if all(self.count(arm) and self._share(arm) + self._max_increase >= 1 for arm in ArmName):
            return "stable leaves no room for a canary that is worse by the margin"
        return ""

    def numbers(self) -> Mapping[str, float]:
        return self.counted(**{f"{arm}_{self.events}": float(self._bad(arm)) for arm in BOTH})

    def _bad(self, arm: ArmName) -> int:
        return int(self._seen[arm][1]) if arm in self._seen else 0

    def _share(self, arm: ArmName) -> float:
        return self._bad(arm) / self.count(arm)


class FailureTest(BadShareTest):
    """Requests of both arms in the same scrapes."""

    def __init__(self, gate: ErrorsGate, kind: str, bad: str, *, temper: bool) -> None:
        """`bad` is the field of a pod's evidence that counts them."""
        super().__init__(kind, gate, temper=temper)
        self.does, self.events, self._field = kind, f"{kind}_requests", bad
        self.worse = f"that it {'fails' if kind == 'failed' else 'refuses'} more often than tolerated"

    def trials(self, batch: Batch) -> Sequence[PodTrials]:
        self.missing = batch.missing.get("requests", "")
        return [
            PodTrials(arm=pod.arm, pod=pod.pod, trials=pod.requests, events=getattr(pod, self._field))
            for pod in batch.arms
        ]


class PairedFailureTest(MetricTest):
    """Prompts that went to both arms: how often only one of them answered."""

    process: PairedScoresProcess
    worse = "that it fails more often than tolerated"
    sample = "pairs"

    def __init__(self, gate: ErrorsGate) -> None:
        super().__init__("failed", needed=gate.min_requests)
        self._max_increase = gate.max_increase
        self.process = PairedScoresProcess(max_drop=gate.max_increase, tolerance=gate.tolerance)

    def take(self, batch: Batch, seconds: float) -> None:
        failed = [(pair.canary is None, pair.stable is None) for pair in batch.pairs]
        self._pairs += len(failed)
        self._canary += sum(canary for canary, _ in failed)
        self._stable += sum(stable for _, stable in failed)
        # Where nobody answered, the way to both may be broken: that says nothing of either.
        told = [float(canary) - float(stable) for canary, stable in failed if not (canary and stable)]
        if told:
            self.process.feed(np.asarray(told), seconds)

    def forget(self) -> None:
        self._pairs = self._canary = self._stable = 0

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
            f"stable {self._stable:,} (allowed {self._max_increase * 100:+g} pp)"
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

    def take(self, batch: Batch, seconds: float) -> None:
        requests = sum(pod.requests for pod in pods_of(batch, ArmName.STABLE))
        arrived = sum(pod.requests for pod in pods_of(batch, ArmName.CANARY))
        copies, missing = self._copies, self._requests - self._copies
        self._requests += requests
        self._arrived += arrived
        # What was missing may have come by now: then fewer are missing than before.
        more, fewer = self._copies - copies, self._requests - self._copies - missing
        self.process.feed(np.asarray(more), np.asarray(fewer), seconds)

    def forget(self) -> None:
        self._arrived = self._requests = 0

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


def expected_failures(max_increase: float, tolerance: float, expected: Expected, worse: Array) -> Flow:
    """Each canary fails a share `worse` of its requests more often than stable does."""
    arrivals, usual = expected.arrivals, expected.assumed.error_rate
    rates = np.minimum(usual + worse, 1.0)
    canary = np.stack([1 - rates, rates], axis=-1)
    stable = np.broadcast_to([1 - usual, usual], (len(worse), 1, 2))
    process = FailureProcess(max_increase=max_increase, tolerance=tolerance, temper=False, leading=worse.shape)
    counted = evidence_per_request(expected)
    # Failures are few, and a part of one is none; so they come whole, one after the other.
    whole_canary, whole_stable = WholeCounts(canary.shape), WholeCounts(stable.shape)

    def feed(seconds: float) -> None:
        each = seconds * counted
        came = whole_canary.of(canary * arrivals.canary * each)
        process.feed(came, whole_stable.of(stable * arrivals.stable * each), seconds)

    return Flow(process, feed)
