"""Asks whether the canary is slower than the stable arm next to it, of requests and of pairs.

Requests are counted in bins of histograms, or of raw samples: of times, and of any other numbers above 0 whose ratios
matter (`gates.analyses.quantile`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from pydantic import Field

from gates.analyses.base import BOTH, Conditions, MetricTest, PodCountsTest, StageUse, TestedGate, pods_of
from gates.evidence.batch import (
    SHORTEST_SECONDS,
    ArmName,
    Batch,
    Buckets,
    LatencyMetric,
    PairedReply,
    Times,
)
from gates.model import Sample
from gates.stats.binary import FailureProcess
from gates.stats.e_process import Array
from gates.stats.exchange import EXACT_DRAWS
from gates.stats.paired import PairedTimesProcess
from gates.stats.times import LatencyProcess, count_samples, sample_edges
from gates.stats.warmth import CachedShares
from gates.traffic import Expected, Flow, evidence_per_request, expected_draws
from tidegate.core.metrics import MetricSignal
from tidegate.core.model import Loc
from tidegate.core.units import Percent, PercentagePoints, Quantile


class UnfitTimes(ValueError):
    """Buckets that cannot be brought onto the grid of those before."""


def grid_of(all_times: Iterable[Times]) -> Array | None:
    """The edges on which all these times can be counted; None while there are none.

    Raises:
        UnfitTimes: when buckets have no edge in common.
    """
    all_times = [times for times in all_times if times]
    buckets = [times for times in all_times if isinstance(times, Buckets)]
    if not buckets:
        return sample_edges() if all_times else None
    # An edge at 0 has no logarithm: what is counted there is counted with the bucket above it.
    common = set(buckets[0].edges).intersection(*(each.edges for each in buckets[1:])) - {0.0}
    if len(common) < 2:
        raise UnfitTimes("the histograms of both arms have fewer than two bucket edges in common")
    return np.asarray(sorted(common))


def counted(times: Times, edges: Array) -> Array:
    """How many requests lie in each bin of the grid.

    Raises:
        UnfitTimes: when buckets lack an edge of the grid.
    """
    if not isinstance(times, Buckets):
        return count_samples(times, edges)
    cumulated = np.cumsum(times.counts)
    at = np.searchsorted(times.edges, edges)
    if at.max() >= len(times.edges) or not np.array_equal(np.asarray(times.edges)[at], edges):
        raise UnfitTimes("the histogram lost a bucket edge that earlier ones had")
    return np.diff(np.append(cumulated[at], cumulated[-1]), prepend=0).astype(np.float64)


class QuantileMargin(NamedTuple):
    """Which quantile is compared, and by what share of stable's the canary's may exceed it."""

    quantile: float
    max_increase: float
    tolerance: float


def margin_of(gate: TestedGate) -> QuantileMargin:
    """What a gate on a quantile says of it."""
    return QuantileMargin(*(getattr(gate, field) for field in QuantileMargin._fields))


PodTimes = tuple[ArmName, str, Times]
"""What one pod of one arm counted, with the pod's name."""


class HistogramTest(PodCountsTest):
    """A quantile of both arms, counted on one grid."""

    process: LatencyProcess | None

    def __init__(self, kind: str, margin: QuantileMargin, *, needed: int, temper: bool) -> None:
        """`kind` is also what a batch says is missing."""
        super().__init__(kind, needed=needed)
        self._margin, self._temper = margin, temper
        self._edges: Array = sample_edges()

    @abstractmethod
    def times(self, batch: Batch) -> Sequence[PodTimes]:
        """Those of a batch, pod by pod."""

    @abstractmethod
    def shown(self, value: float) -> str:
        """A value of the grid, for people."""

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; a batch whose buckets do not fit those before gives no evidence."""
        self.missing = batch.missing.get(self.kind, "")
        try:
            self._learn(self.times(batch), seconds)
        except UnfitTimes as unfit:
            self.missing = str(unfit)

    def _learn(self, found: Sequence[PodTimes], seconds: float) -> None:
        if self.process is None:
            edges = grid_of(times for _, _, times in found)
            if edges is None:
                return
            self._edges = edges
            self.process = LatencyProcess(edges, **self._margin._asdict(), temper=self._temper)
        counts = [(arm, pod, counted(times, self._edges)) for arm, pod, times in found if times]
        self.feed(self.process, counts, seconds, bins=len(self._edges) + 1)

    def compare(self) -> str:
        canary, stable = self.quantile(ArmName.CANARY), self.quantile(ArmName.STABLE)
        noun = f"{self.noun} " if self.noun else ""
        return (
            f"canary {noun}p{self._margin.quantile * 100:g} is {self.shown(canary)} against {self.shown(stable)} on "
            f"stable ({(canary / stable - 1) * 100:+z.0f} %, allowed {self._margin.max_increase * 100:+g} %)"
        )

    def quantile(self, arm: ArmName) -> float:
        """Within its bin evenly spread; beyond the last edge, that edge."""
        reached = np.cumsum(self._seen[arm])
        rank = self._margin.quantile * reached[-1]
        place = int(np.searchsorted(reached, rank * (1 - 1e-12)))
        if place >= len(self._edges):
            return float(self._edges[-1])
        low, below = (self._edges[place - 1], reached[place - 1]) if place else (0.0, 0.0)
        return float(low + (self._edges[place] - low) * (rank - below) / (reached[place] - below))

    def named(self, prefix: str, unit: str) -> Mapping[str, float]:
        """The numbers: both quantiles between `prefix` and `unit`, and the counts."""
        name = f"{prefix}p{self._margin.quantile * 100:g}"
        return self.counted(**{f"{name}_{arm}{unit}": self.quantile(arm) for arm in BOTH if self.count(arm)})


def as_time(seconds: float) -> str:
    """A latency: `210 ms`, `1.25 s`."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"


class LatencyGate(TestedGate):
    """The canary's quantile may exceed that of the concurrent stable arm by `max_increase` at most."""

    name = "latency"
    # Of times users know best.
    stages = (StageUse("shadow", ("probe",), by_default=True), StageUse("canary", ("users",), by_default=True))
    from_batches = True
    from_pairs = True
    scale = "percent"
    least = "min_requests"
    margin = "max_increase"
    worst_regression = 4.0
    example = "{max_increase: 20%}"

    metric: LatencyMetric = LatencyMetric.TTFT
    quantile: Quantile = 0.95
    max_increase: Percent = Field(default=0.2, validate_default=False)
    """Of the stable arm's quantile; 0.2 is 20 %. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, validate_default=False)
    """The spread between pods that is nobody's fault. The gate fails once the canary is proven to be slower by more."""
    min_requests: Sample = 40
    """Answered by the canary before a pass, however clear the evidence; one that failed has no latency."""
    max_colder: PercentagePoints = Field(default=0.05, validate_default=False)
    """Where engines count what came from their prefix caches: by how much the canary's share of prompts may be below
    stable's. Before that its requests do not count, neither for a pass nor for a fail."""

    def signals(self) -> Mapping[Loc, MetricSignal]:
        return {("metric",): MetricSignal(str(self.metric))}

    def tests(self, conditions: Conditions) -> Iterator[tuple[float, MetricTest]]:
        paired = conditions.source == "probe"
        yield 1, PairedLatencyTest(self) if paired else LatencyTest(self, temper=conditions.temper)

    def flows(self, expected: Expected, worse: Array) -> Iterator[Flow]:
        """As `TestedGate`; both times of a pair differ by chance, and the canary's by a share `worse` on top."""
        if not expected.paired:
            yield expected_times(margin_of(self), expected, worse)
            return
        process = PairedTimesProcess(max_increase=self.max_increase, tolerance=self.tolerance, leading=worse.shape)
        later, spread = np.log1p(worse)[:, None], expected.assumed.pair_spread
        yield expected_draws(process, expected.arrivals, lambda first, _: later + spread * scipy.special.ndtri(first))


class LatencyTest(HistogramTest):
    """Requests of both arms in the same scrapes, as samples or buckets; none of a canary whose cache is cold."""

    worse = "that it is slower than tolerated"

    def __init__(self, gate: LatencyGate, *, temper: bool) -> None:
        super().__init__(str(gate.metric), margin_of(gate), needed=gate.min_requests, temper=temper)
        self.noun = gate.metric.upper()
        self._max_colder, self._cached = gate.max_colder, CachedShares()
        self._cold = False

    def times(self, batch: Batch) -> Sequence[PodTimes]:
        return [(pod.arm, pod.pod, getattr(pod, self.kind)) for pod in batch.arms]

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; where nobody counts both arms' cached tokens, everything counts."""
        pods = [pods_of(batch, arm) for arm in BOTH]
        tokens = [(sum(pod.cached_tokens for pod in arm), sum(pod.prompt_tokens for pod in arm)) for arm in pods]
        times = [[getattr(pod, self.kind) for pod in arm] for arm in pods]
        requests = [sum(sum(each.counts) if isinstance(each, Buckets) else len(each) for each in arm) for arm in times]
        self._cold = bool(self._cached.cold(np.asarray(tokens, float), np.asarray(requests), self._max_colder))
        super().take(batch, seconds)

    def feed(
        self,
        process: FailureProcess | LatencyProcess,
        pods: Sequence[tuple[ArmName, str, Array]],
        seconds: float,
        *,
        bins: int,
    ) -> None:
        seen, told = dict(self._seen), float(not self._cold)
        pods = [(arm, pod, each * told if arm is ArmName.CANARY else each) for arm, pod, each in pods]
        super().feed(process, pods, seconds, bins=bins)
        if self._cold:
            self._seen = seen

    def describe(self) -> str:
        if not self._cold:
            return super().describe()
        canary, stable = self._cached.shares
        cold = (
            f"the canary's cache is cold: it had {canary:.0%} of the prompts' tokens, stable's {stable:.0%}; "
            f"requests are compared once that is within {self._max_colder * 100:g} pp"
        )
        return f"{super().describe()}; now {cold}" if self.seen else cold

    def shown(self, value: float) -> str:
        return as_time(value)

    def numbers(self) -> Mapping[str, float]:
        return self.named(f"{self.kind}_", "_seconds")


MOST_TIMES = 10_000
"""Pairs that are kept for the description; evidence needs none of them."""


class PairedLatencyTest(MetricTest):
    """Pairs: the same prompt in both arms at the same moment, so that difficulty and load cancel."""

    process: PairedTimesProcess
    worse = "that it is later than tolerated"
    sample = "pairs"
    _times: list[tuple[float, float]]
    """The canary's and stable's."""

    def __init__(self, gate: LatencyGate) -> None:
        """Within pairs the margin is of the ratio, not of the quantile."""
        super().__init__(str(gate.metric), needed=gate.min_requests)
        self._max_increase = gate.max_increase
        self.process = PairedTimesProcess(max_increase=gate.max_increase, tolerance=gate.tolerance)

    def take(self, batch: Batch, seconds: float) -> None:
        times = [(self._time(pair.canary), self._time(pair.stable)) for pair in batch.pairs]
        known = [(canary, stable) for canary, stable in times if canary and stable]
        self._times = (self._times + known)[-MOST_TIMES:]
        if known:
            logs = np.log(known)
            self.process.feed(logs[:, 0] - logs[:, 1], seconds)

    def _time(self, reply: PairedReply | None) -> float | None:
        seconds: float | None = getattr(reply, self.kind, None)
        return None if seconds is None or seconds < SHORTEST_SECONDS else seconds

    def forget(self) -> None:
        self._times = []

    @property
    def seen(self) -> int:
        return len(self._times)

    def describe(self) -> str:
        metric = self.kind.upper()
        if not self._times:
            return f"no pair has a {metric} on both arms"
        canary, stable, ratio = self._middle()
        return (
            f"canary {metric} is {as_time(canary)} against {as_time(stable)} on stable in the median, "
            f"{(ratio - 1) * 100:+z.0f} % within {self.seen:,} pairs (allowed {self._max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        if not self._times:
            return {"pairs": 0.0}
        canary, stable, ratio = self._middle()
        name = f"median_{self.kind}"
        medians = {f"{name}_canary_seconds": canary, f"{name}_stable_seconds": stable}
        return medians | {"median_increase_share": ratio - 1, "pairs": float(self.seen)}

    def _middle(self) -> tuple[float, float, float]:
        """The medians of the canary's times, of stable's, and of their ratio."""
        times = np.asarray(self._times)
        return float(np.median(times[:, 0])), float(np.median(times[:, 1])), float(np.median(times[:, 0] / times[:, 1]))


TYPICAL_SECONDS = 0.2
"""The median time. Any would do: only ratios of times matter."""


POOR_PAST = 2.0
"""What a short past costs: bets on a slower canary are made from the stable requests seen so far, and those are the
fewer, and say the less, the more go to the canary and the wider times are spread. Measured by simulation."""


def expected_times(margin: QuantileMargin, expected: Expected, worse: Array) -> Flow:
    """Log-normal times of both arms; each canary's are all longer by a share `worse`."""
    arrivals, spread = expected.arrivals, expected.assumed.spread
    edges = _edges(spread, float(worse.max()))
    canary, stable = (_time_shares(edges, spread, each) for each in (worse, np.zeros(1)))
    process = LatencyProcess(edges, **margin._asdict(), temper=False, leading=worse.shape)
    part = evidence_per_request(expected)
    share = arrivals.canary / (arrivals.canary + arrivals.stable)
    pods = np.broadcast_to(stable, (len(worse), 1, stable.shape[-1]))

    def feed(seconds: float) -> None:
        each = seconds * part
        process.feed(canary * arrivals.canary * each, pods * arrivals.stable * each, seconds)

    return Flow(process, feed, worse_takes=1 + POOR_PAST * spread * share, fewest=EXACT_DRAWS + 1)


def _edges(spread: float, worst: float) -> Array:
    edges = sample_edges()
    reach = np.exp(4 * spread)
    inside = (edges >= TYPICAL_SECONDS / reach) & (edges <= TYPICAL_SECONDS * reach * (1 + worst))
    return np.asarray(edges[inside])


def _time_shares(edges: Array, spread: float, worse: Array) -> Array:
    """The share of requests in each bin, (E, K + 1)."""
    below = scipy.special.ndtr((np.log(edges / TYPICAL_SECONDS) - np.log1p(worse)[:, None]) / spread)
    return np.asarray(np.diff(below, prepend=0.0, append=1.0, axis=-1))
