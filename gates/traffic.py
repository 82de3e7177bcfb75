"""Expected traffic: what a canary sees of it in a stage, and how it reaches the very processes that judge the real one.

Several canaries run side by side, each worse by another amount, the healthy one first. Counts are what
traffic is on average and need not be whole; draws of pairs are spread evenly over their distribution.
So one run shows what the evidence will typically come to, without chance and without a second formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy
from pydantic import Field

from gates.evidence.batch import Source
from gates.model import Share as ShareOfOne
from gates.stats.e_process import Array, EvidenceProcess
from gates.stats.paired import PairedScoresProcess, PairedTimesProcess
from gates.stats.spread import CONFIDENCE, PRIOR_DEGREES
from tidegate.core.model import Value

Positive = Field(gt=0, allow_inf_nan=False)


class Assumptions(Value):
    """What traffic is like while nothing is wrong; no one knows it before, so plans state it."""

    spread: float = Field(default=0.5, gt=0, le=3)
    """Standard deviation of the logarithm of times: at 0.5, p95 is 2.3 times the median."""
    pair_spread: float = Field(default=0.3, gt=0, le=3)
    """The same of the ratio of both times within a pair."""
    error_rate: ShareOfOne = 0.005
    """Of requests that fail on either arm."""
    likeness: ShareOfOne = 0.8
    """Mean similarity of both answers to one prompt."""
    likeness_spread: float = Field(default=0.2, ge=0, le=1)
    """Standard deviation of that similarity."""
    score_spread: float = Field(default=0.2, ge=0, le=1)
    """Standard deviation of the difference of a judge's two scores within a pair."""
    block_spread: float = Field(default=0.05, gt=0, le=3)
    """Standard deviation of the logarithm of the ratio of both arms' throughputs within a block of load."""
    answer_spread: float = Field(default=0.25, ge=0, le=1)
    """Standard deviation of a judge's scores of one arm's answers to different prompts."""
    stable_pods: int = Field(default=1, ge=1)
    """With two or more, evidence is tempered by the spread between them."""


class ArrivalRates(Value):
    """Requests a second on each arm, or pairs a second on both."""

    canary: float = Positive
    stable: float = Positive
    look: float = Positive
    """Seconds between two batches."""

    def times(self, per_request: float) -> ArrivalRates:
        """Of what comes so often for each request, or pair."""
        return self.model_copy(update={arm: getattr(self, arm) * per_request for arm in ("canary", "stable")})


class Expected(NamedTuple):
    """The traffic of a stage, and how it is judged."""

    arrivals: ArrivalRates
    assumed: Assumptions
    paired: bool
    """Whether both arms get the same prompts."""
    temper: bool


@dataclass(frozen=True)
class Flow:
    """Expected traffic on its way into a process."""

    evidence: EvidenceProcess
    """With one lane for each canary."""
    feed: Callable[[float], None]
    """Let so many more seconds pass."""
    worse_takes: float = 1.0
    """How much longer evidence against a canary takes than it does here."""
    fewest: float = 0.0
    """Requests of the canary that a step of time must bring: no expected count stands for the average of fewer."""
    most: float = math.inf
    """Requests of the canary that are worth counting one by one."""


MOST_PAIRS = 100_000


class WholeCounts:
    """Whole counts that follow expected ones; the first comes at half of its waiting time."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._owed = np.full(shape, 0.5)

    def of(self, expected: Array) -> Array:
        self._owed = self._owed + expected
        whole = np.floor(self._owed + 1e-9)
        self._owed = self._owed - whole
        return np.asarray(whole)


class EvenDraws:
    """Points spread evenly over the unit square, however many are taken at a time (Roberts' R2 sequence).

    Each is followed by its mirror image, so that even a few have the right mean.
    """

    STEPS = (0.7548776662466927, 0.5698402909980532)

    def __init__(self, per_second: float) -> None:
        self._per_second, self._owed, self._taken = per_second, 0.0, 0

    def after(self, seconds: float) -> tuple[Array, Array]:
        self._owed += self._per_second * seconds
        count = int(self._owed)
        self._owed -= count
        index = np.arange(self._taken, self._taken + count)
        self._taken += count
        first = np.asarray((0.5 + (index // 2 + 1) * self.STEPS[0]) % 1.0)
        second = np.asarray((0.5 + (index + 1) * self.STEPS[1]) % 1.0)
        return np.asarray(np.where(index % 2, 1 - first, first)), second


def expected_draws(
    process: PairedTimesProcess | PairedScoresProcess, arrivals: ArrivalRates, drawn: Callable[[Array, Array], Array]
) -> Flow:
    """As many pairs as there are, each made by `drawn` of a point in the unit square."""
    draws = EvenDraws(arrivals.canary)
    return Flow(process, lambda seconds: process.feed(drawn(*draws.after(seconds)), seconds), most=MOST_PAIRS)


def evidence_per_request(expected: Expected) -> float:
    """How much of each request counts as evidence, on average.

    A scrape compares its own requests only: one that has a single request says nothing. For Poisson arrivals
    with mean a of both arms together that takes (1 - exp(-a)) / a of all evidence.
    """
    requests = (expected.arrivals.canary + expected.arrivals.stable) * expected.arrivals.look
    together = 1 - (1 - np.exp(-requests)) / requests
    return float(together / (_design_effect(expected.assumed.stable_pods) if expected.temper else 1.0))


def _design_effect(pods: int) -> float:
    """What `Spread` makes of pods that are alike and as busy as the canary's: it is not sure that they are."""
    degrees = PRIOR_DEGREES + pods - 1
    return max(degrees / float(scipy.special.chdtri(degrees, CONFIDENCE)), 1.0) if pods > 1 else 1.0


ANY_RATE = 20.0
"""Requests a second when nobody says how many there are: needs hardly depend on it, and times are not told."""

USUAL_BLOCK_SECONDS = 60.0
"""On both arms, when nobody says how long: needs are counted in blocks."""

Unit = Literal["requests", "pairs", "prompts", "blocks", "looks"]
Scale = Literal["percent", "cost", "change", "points", "score"]


class Exposure(Value):
    """What of its users' traffic a canary sees in one stage, and for how long."""

    requests_per_second: float | None = Field(default=None, gt=0)
    """Of all users of a region; None when unknown."""
    percent: float = Field(default=100, gt=0, le=100)
    """Of these, what reaches the canary."""
    mirrored: bool = False
    """Whether those are copies, and stable answers all users."""
    pairs_per_second: float | None = Field(default=None, gt=0)
    """Prompts of our own that go to both arms."""
    judged: float = Field(default=1.0, gt=0, le=1)
    """The share of pairs that a judge is asked about."""
    block_seconds: float | None = Field(default=None, gt=0)
    """Of a block of load, on both arms."""
    sampled: float = Field(default=1.0, gt=0, le=1)
    """The share of users' requests that engines keep for a judge."""
    within_seconds: float = Field(gt=0)
    look_seconds: float = Field(default=10.0, gt=0)

    def arrivals(self, source: Source, *, judged: bool = False) -> ArrivalRates:
        """What a gate gets to see on the word of a source; `judged` when it sees only pairs that a judge has scored."""
        if source == "load":
            seconds = self.block_seconds or USUAL_BLOCK_SECONDS
            return ArrivalRates(canary=1 / seconds, stable=1 / seconds, look=seconds)
        if source == "probe":
            pairs = (self.pairs_per_second or 1.0) * (self.judged if judged else 1.0)
            return ArrivalRates(canary=pairs, stable=pairs, look=self.look_seconds)
        users, part = self.requests_per_second or ANY_RATE, self.percent / 100
        if source == "samples":
            # A request and its copy make a pair; else one of each arm: half of what is kept, as far as an arm has it.
            kept = part * self.sampled if self.mirrored else min(part, max(1 - part, 0.001), self.sampled / 2)
            pairs = users * kept
            return ArrivalRates(canary=pairs, stable=pairs, look=self.look_seconds)
        stable = users if self.mirrored else users * max(1 - part, 0.001)
        return ArrivalRates(canary=users * part, stable=stable, look=self.look_seconds)

    def pairs(self, source: Source) -> bool:
        """Whether both arms get the same prompts there."""
        return source == "probe" or (source == "samples" and self.mirrored)

    def timed(self, source: Source) -> bool:
        """Whether anybody said how much traffic there is."""
        found = {"probe": self.pairs_per_second, "load": self.block_seconds}.get(source, self.requests_per_second)
        return found is not None


Change = Literal["within", "percent", "pairs_per_second"]


class GateForecast(Value):
    """What one gate will typically do on the word of one source."""

    gate: str
    source: Source | None = None
    """None for the prompts of a golden set."""
    unit: Unit
    """Of what the canary must have answered."""
    scale: Scale | None = None
    """How regressions are meant: percent of stable's (times, cost, or any change), percentage points of requests, or
    points of a score in 0..1. Nothing is told of regressions where a gate has statistics of its own."""
    canary_requests_to_pass: int | None
    """Until half of all healthy canaries have passed; None when they never do."""
    seconds_to_pass: float | None = None
    """None when no one knows the traffic, or never."""
    regression_share: float | None = None
    """The regression of the next two: of the margin's size, as a share; of a fixed bound, as far below it as the
    healthy canary is above."""
    canary_requests_to_fail: int | None = None
    """Until half of all canaries that are worse by this are caught; None when they never are."""
    seconds_to_fail: float | None = None
    smallest_regression_share: float | None = None
    """What is caught before the time is over, more often than not; None when nothing is, or no one knows."""
    within_seconds: float | None = None
    """How long the stage may take."""
    reachable: bool = True
    """Whether a healthy canary passes in time, more often than not; true when no one knows the traffic."""
    proposals: Mapping[Change, float] = {}
    """What alone would let eight of ten healthy canaries pass in time: at least so many seconds, percent of users or of
    copies, or pairs a second. Empty when a healthy canary passes in time."""


EARLY = 0.9
"""Evidence wanders, so half of all canaries are there a little before the average evidence is. Measured."""
