"""Traffic as it is expected to be, fed to the very processes that will judge the real one.

Several canaries run side by side, each worse by another amount, the healthy one first. Counts are what
traffic is on average and need not be whole; draws of pairs are spread evenly over their distribution.
So one run shows what the evidence will typically come to, without chance and without a second formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy
from pydantic import Field

from gates.evalues.exchange import EXACT_DRAWS, Array
from gates.evalues.failing import Failing
from gates.evalues.grid import sample_edges
from gates.evalues.paired import Later, Lower
from gates.evalues.share import Share
from gates.evalues.slower import Slower
from gates.evalues.spread import CONFIDENCE, PRIOR_DEGREES
from gates.shares import Share as ShareOfOne
from gates.spec import AgreementGate, ErrorsGate, LatencyGate, ScoresGate
from tidegate.core.model import Value

Positive = Field(gt=0, allow_inf_nan=False)


class Assumptions(Value):
    """What traffic is like while nothing is wrong; nobody knows it before, so plans state it."""

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
    stable_pods: int = Field(default=1, ge=1)
    """With two or more, evidence is tempered by the spread between them."""


class Arrivals(Value):
    """Requests a second on each arm, or pairs a second on both."""

    canary: float = Positive
    stable: float = Positive
    look: float = Positive
    """Seconds between two batches."""


class Evidence(Protocol):
    """A process of `gates.evalues`, with one lane for each canary."""

    @property
    def log_worse(self) -> Array: ...
    @property
    def log_fine(self) -> Array: ...


@dataclass(frozen=True)
class Flow:
    """Expected traffic on its way into a process."""

    evidence: Evidence
    feed: Callable[[float], None]
    """Let so many more seconds pass."""
    worse_takes: float = 1.0
    """How much longer evidence against a canary takes than it does here."""
    fewest: float = 0.0
    """Requests of the canary that a step of time must bring: no expected count stands for the average of fewer."""
    most: float = math.inf
    """Requests of the canary that are worth counting one by one."""


TYPICAL_SECONDS = 0.2
"""The median time. Any would do: only ratios of times matter."""
POOR_PAST = 2.0
"""What a short past costs: bets on a slower canary are made from the stable requests seen so far, and those are the
fewer, and say the less, the more go to the canary and the wider times are spread. Measured by simulation."""
MOST_PAIRS = 100_000


def times(gate: LatencyGate, arrivals: Arrivals, worse: Array, assumed: Assumptions, *, temper: bool) -> Flow:
    """Log-normal times of both arms; each canary's are all longer by a share `worse`."""
    edges = _edges(assumed.spread, float(worse.max()))
    canary, stable = _time_shares(edges, assumed.spread, worse), _time_shares(edges, assumed.spread, np.zeros(1))
    process = Slower(
        edges,
        quantile=gate.quantile,
        max_increase=gate.max_increase,
        tolerance=gate.tolerance,
        temper=False,
        leading=worse.shape,
    )
    counted = _counted(arrivals, assumed, temper=temper)
    share = arrivals.canary / (arrivals.canary + arrivals.stable)
    pods = np.broadcast_to(stable, (len(worse), 1, stable.shape[-1]))

    def feed(seconds: float) -> None:
        each = seconds * counted
        process.feed(canary * arrivals.canary * each, pods * arrivals.stable * each, seconds)

    return Flow(process, feed, worse_takes=1 + POOR_PAST * assumed.spread * share, fewest=EXACT_DRAWS + 1)


def failures(gate: ErrorsGate, arrivals: Arrivals, worse: Array, assumed: Assumptions, *, temper: bool) -> Flow:
    """Each canary fails a share `worse` of its requests more often than stable does."""
    rates = np.minimum(assumed.error_rate + worse, 1.0)
    canary = np.stack([1 - rates, rates], axis=-1)
    stable = np.broadcast_to([1 - assumed.error_rate, assumed.error_rate], (len(worse), 1, 2))
    process = Failing(max_increase=gate.max_increase, tolerance=gate.tolerance, temper=False, leading=worse.shape)
    counted = _counted(arrivals, assumed, temper=temper)
    # Failures are few, and a part of one is none; so they come whole, one after the other.
    whole_canary, whole_stable = Whole(canary.shape), Whole(stable.shape)

    def feed(seconds: float) -> None:
        each = seconds * counted
        came = whole_canary.of(canary * arrivals.canary * each)
        process.feed(came, whole_stable.of(stable * arrivals.stable * each), seconds)

    return Flow(process, feed)


def paired_times(gate: LatencyGate, arrivals: Arrivals, worse: Array, assumed: Assumptions) -> Flow:
    """Both times of a pair differ by chance, and the canary's by a share `worse` on top."""
    process = Later(max_increase=gate.max_increase, tolerance=gate.tolerance, leading=worse.shape)
    draws = _Draws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, _ = draws.after(seconds)
        process.feed(np.log1p(worse)[:, None] + assumed.pair_spread * scipy.special.ndtri(first), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


def paired_failures(gate: ErrorsGate, arrivals: Arrivals, worse: Array, assumed: Assumptions) -> Flow:
    """Either arm leaves its answer out by itself; each canary a share `worse` more often."""
    process = Lower(max_drop=gate.max_increase, tolerance=gate.tolerance, leading=worse.shape)
    draws = _Draws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, second = draws.after(seconds)
        canary = first < np.minimum(assumed.error_rate + worse, 1.0)[:, None]
        process.feed(canary.astype(np.float64) - (second < assumed.error_rate), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


def scores(gate: ScoresGate, arrivals: Arrivals, worse: Array, assumed: Assumptions) -> Flow:
    """A judge's scores of each canary are lower by `worse` in the mean."""
    process = Lower(max_drop=gate.max_drop, tolerance=gate.tolerance, leading=worse.shape)
    draws = _Draws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, _ = draws.after(seconds)
        process.feed(np.clip(worse[:, None] + assumed.score_spread * scipy.special.ndtri(first), -1, 1), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


def likeness(gate: AgreementGate, arrivals: Arrivals, worse: Array, assumed: Assumptions) -> Flow:
    """Answers of each canary are less like stable's by `worse` in the mean."""
    process = Lower(max_drop=0.0, leading=worse.shape)
    draws = _Draws(arrivals.canary)

    def feed(seconds: float) -> None:
        first, second = draws.after(seconds)
        alike = np.clip(assumed.likeness - worse[:, None] + assumed.likeness_spread * scipy.special.ndtri(first), 0, 1)
        process.feed(gate.min_similarity - alike * (second >= _missing(assumed)), seconds)

    return Flow(process, feed, most=MOST_PAIRS)


def coverage(gate: AgreementGate, arrivals: Arrivals, worse: Array, assumed: Assumptions) -> Flow:
    """A share `worse` more prompts have no answer of the canary."""
    process = Share(min(max(gate.min_coverage, 0.001), 0.999), leading=worse.shape)
    missing = np.minimum(_missing(assumed) + worse, 1.0)
    whole = Whole((2, *missing.shape))

    def feed(seconds: float) -> None:
        hits, misses = whole.of(arrivals.canary * seconds * np.stack([1 - missing, missing]))
        process.feed(hits, misses, seconds)

    return Flow(process, feed)


class Whole:
    """Whole counts that follow expected ones; the first comes at half of its waiting time."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._owed = np.full(shape, 0.5)

    def of(self, expected: Array) -> Array:
        self._owed = self._owed + expected
        whole = np.floor(self._owed + 1e-9)
        self._owed = self._owed - whole
        return np.asarray(whole)


class _Draws:
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


def _missing(assumed: Assumptions) -> float:
    """Prompts whose answer is left out by one arm or the other."""
    return 1 - (1 - assumed.error_rate) ** 2


def _counted(arrivals: Arrivals, assumed: Assumptions, *, temper: bool) -> float:
    """How much of each request counts as evidence, on average.

    A scrape compares its own requests only: one that has a single request says nothing. For Poisson arrivals
    with mean a of both arms together that takes (1 - exp(-a)) / a of all evidence.
    """
    expected = (arrivals.canary + arrivals.stable) * arrivals.look
    together = 1 - (1 - np.exp(-expected)) / expected
    return float(together / (_design_effect(assumed.stable_pods) if temper else 1.0))


def _design_effect(pods: int) -> float:
    """What `Spread` makes of pods that are alike and as busy as the canary's: it is not sure that they are."""
    degrees = PRIOR_DEGREES + pods - 1
    return max(degrees / float(scipy.special.chdtri(degrees, CONFIDENCE)), 1.0) if pods > 1 else 1.0


def _edges(spread: float, worst: float) -> Array:
    edges = sample_edges()
    reach = np.exp(4 * spread)
    inside = (edges >= TYPICAL_SECONDS / reach) & (edges <= TYPICAL_SECONDS * reach * (1 + worst))
    return np.asarray(edges[inside])


def _time_shares(edges: Array, spread: float, worse: Array) -> Array:
    """The share of requests in each bin, (E, K + 1)."""
    below = scipy.special.ndtr((np.log(edges / TYPICAL_SECONDS) - np.log1p(worse)[:, None]) / spread)
    return np.asarray(np.diff(below, prepend=0.0, append=1.0, axis=-1))
