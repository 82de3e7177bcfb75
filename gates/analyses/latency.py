"""Asks whether the canary is slower than the stable arm next to it, of requests and of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import scipy
from pydantic import Field

from gates.analyses.base import Conditions, ExpectedFlow, MetricTest, PodSlots, StageUse, TestedGate
from gates.evidence.batch import (
    SHORTEST_SECONDS,
    ArmName,
    Batch,
    Buckets,
    LatencyMetric,
    PairedReply,
    PodEvidence,
    Source,
    Times,
)
from gates.model import Sample
from gates.stats.e_process import Array
from gates.stats.exchange import EXACT_DRAWS
from gates.stats.paired import PairedTimesProcess
from gates.stats.times import LatencyProcess, count_samples, sample_edges
from gates.traffic import (
    ArrivalRates,
    Assumptions,
    Flow,
    evidence_per_request,
    expected_pairs_of_times,
)
from tidegate.core.model import SpecConflict, SpecModel
from tidegate.core.quantities import Percent


class LatencyGate(SpecModel):
    """The canary's quantile may exceed that of the concurrent stable arm by `max_increase` at most."""

    metric: LatencyMetric = LatencyMetric.TTFT
    quantile: float = Field(default=0.95, gt=0, lt=1)
    max_increase: Percent = Field(default=0.2, validate_default=False)
    """Of the stable arm's quantile; 0.2 is 20 %. The gate passes once the canary is proven to be within it."""
    tolerance: Percent = Field(default=0.02, validate_default=False)
    """The spread between pods that is nobody's fault. The gate fails once the canary is proven to be slower by more."""
    min_requests: Sample = 40
    """Answered by the canary before a pass, however clear the evidence; one that failed has no latency."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """What is tolerated must be allowed."""
        if self.tolerance >= self.max_increase:
            yield SpecConflict(
                ("tolerance",), f"{self.tolerance:.0%}", f"less than max_increase, {self.max_increase:.0%}"
            )


def as_time(seconds: float) -> str:
    """A latency: `210 ms`, `1.25 s`."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"


class UnfitTimes(ValueError):
    """Buckets that cannot be brought onto the grid of those before."""


def times_of(pod: PodEvidence, metric: LatencyMetric) -> Times:
    """The times that the metric names."""
    return {LatencyMetric.TTFT: pod.ttft, LatencyMetric.ITL: pod.itl, LatencyMetric.E2E: pod.e2e}[metric]


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


class LatencyTest(MetricTest):
    """Requests of both arms in the same scrapes, as samples or buckets."""

    worse = "that it is slower than tolerated"
    process: LatencyProcess | None = None

    def __init__(self, gate: LatencyGate, *, temper: bool) -> None:
        """Settings as the spec has them."""
        super().__init__(str(gate.metric), needed=gate.min_requests)
        self._gate, self._temper = gate, temper
        self._edges: Array = sample_edges()
        self._slots = PodSlots()
        self._seen: dict[ArmName, Array] = {}

    def take(self, batch: Batch, seconds: float) -> None:
        """As `MetricTest`; a batch whose buckets do not fit gives no evidence."""
        metric = self._gate.metric
        self.missing = batch.missing.get(str(metric), "")
        found = {pod: times_of(pod, metric) for pod in batch.arms}
        try:
            process = self._begun(grid_of(found.values()))
            if process is None:
                return
            counts = {pod: counted(times, self._edges) for pod, times in found.items() if times}
        except UnfitTimes as unfit:
            self.missing = str(unfit)
            return
        canaries = [each for pod, each in counts.items() if pod.arm is ArmName.CANARY]
        stable, reused = self._slots.place({pod.pod: each for pod, each in counts.items() if pod.arm is ArmName.STABLE})
        for slot in reused:
            process.forget_pod(slot)
        stable = stable if stable.shape[-1] == len(self._edges) + 1 else np.zeros((len(stable), len(self._edges) + 1))
        canary = np.sum(canaries, axis=0) if canaries else np.zeros(len(self._edges) + 1)
        self._note(canary, stable.sum(axis=0))
        if canaries:
            process.feed(canary, stable, seconds, canary_pods=len(canaries))
        else:
            process.learn(stable, seconds)

    def restart(self) -> None:
        """As `MetricTest`; what is described is counted again too, because traffic shares changed."""
        self._seen.clear()
        if self.process:
            self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return self._count(ArmName.CANARY) if self._count(ArmName.STABLE) else 0

    def describe(self) -> str:
        metric, quantile = self._gate.metric.upper(), f"p{self._gate.quantile * 100:g}"
        for arm in (ArmName.CANARY, ArmName.STABLE):
            if not self._count(arm):
                reason = f": {self.missing}" if self.missing else ""
                return f"no {metric} of {'the canary' if arm is ArmName.CANARY else 'stable'}{reason}"
        canary, stable = self._quantile(ArmName.CANARY), self._quantile(ArmName.STABLE)
        return (
            f"canary {metric} {quantile} is {as_time(canary)} against {as_time(stable)} on stable "
            f"({(canary / stable - 1) * 100:+z.0f} %, allowed {self._gate.max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        arms = {str(arm): arm for arm in (ArmName.CANARY, ArmName.STABLE)}
        name = f"{self._gate.metric}_p{self._gate.quantile * 100:g}"
        times = {f"{name}_{text}_seconds": self._quantile(arm) for text, arm in arms.items() if self._count(arm)}
        counts = {f"{text}_requests": float(self._count(arm)) for text, arm in arms.items()}
        effect = float(self.process.design_effect.max()) if self.process else 1.0
        return times | counts | {"design_effect": effect}

    def _begun(self, edges: Array | None) -> LatencyProcess | None:
        """The process, once there are times that say on which grid."""
        if self.process is None and edges is not None:
            gate, self._edges = self._gate, edges
            self.process = LatencyProcess(
                edges,
                quantile=gate.quantile,
                max_increase=gate.max_increase,
                tolerance=gate.tolerance,
                temper=self._temper,
            )
        return self.process

    def _note(self, canary: Array, stable: Array) -> None:
        for arm, counts in ((ArmName.CANARY, canary), (ArmName.STABLE, stable)):
            self._seen[arm] = self._seen.get(arm, 0.0) + counts

    def _count(self, arm: ArmName) -> int:
        return int(np.sum(self._seen.get(arm, 0.0)))

    def _quantile(self, arm: ArmName) -> float:
        """Within its bin evenly spread; beyond the last edge, that edge."""
        reached = np.cumsum(self._seen[arm])
        rank = self._gate.quantile * reached[-1]
        place = int(np.searchsorted(reached, rank * (1 - 1e-12)))
        if place >= len(self._edges):
            return float(self._edges[-1])
        low, below = (self._edges[place - 1], reached[place - 1]) if place else (0.0, 0.0)
        return float(low + (self._edges[place] - low) * (rank - below) / (reached[place] - below))


class PairedLatencyTest(MetricTest):
    """Pairs: the same prompt in both arms at the same moment, so that difficulty and load cancel."""

    process: PairedTimesProcess
    worse = "that it is later than tolerated"
    sample = "pairs"

    def __init__(self, gate: LatencyGate) -> None:
        """Settings as the spec has them; within pairs the margin is of the ratio, not of the quantile."""
        super().__init__(str(gate.metric), needed=gate.min_requests)
        self._gate = gate
        self.process = PairedTimesProcess(max_increase=gate.max_increase, tolerance=gate.tolerance)
        self._times: list[tuple[float, float]] = []

    def take(self, batch: Batch, seconds: float) -> None:
        times = [(_time(pair.canary, self._gate.metric), _time(pair.stable, self._gate.metric)) for pair in batch.pairs]
        known = [(canary, stable) for canary, stable in times if canary and stable]
        self._times = (self._times + known)[-MOST_TIMES:]
        if known:
            logs = np.log(known)
            self.process.feed(logs[:, 0] - logs[:, 1], seconds)

    def restart(self) -> None:
        self._times = []
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return len(self._times)

    def describe(self) -> str:
        metric = self._gate.metric.upper()
        if not self._times:
            return f"no pair has a {metric} on both arms"
        canary, stable, ratio = self._middle()
        change = f"{(ratio - 1) * 100:+z.0f} % within {len(self._times):,} pairs"
        return (
            f"canary {metric} is {as_time(canary)} against {as_time(stable)} on stable in the median, "
            f"{change} (allowed {self._gate.max_increase * 100:+g} %)"
        )

    def numbers(self) -> Mapping[str, float]:
        if not self._times:
            return {"pairs": 0.0}
        canary, stable, ratio = self._middle()
        name = f"median_{self._gate.metric}"
        return {
            f"{name}_canary_seconds": canary,
            f"{name}_stable_seconds": stable,
            "median_increase_share": ratio - 1,
            "pairs": float(len(self._times)),
        }

    def _middle(self) -> tuple[float, float, float]:
        times = np.asarray(self._times)
        return float(np.median(times[:, 0])), float(np.median(times[:, 1])), float(np.median(times[:, 0] / times[:, 1]))


MOST_TIMES = 10_000
"""Pairs that are kept for the description; evidence needs none of them."""


def _time(reply: PairedReply | None, metric: LatencyMetric) -> float | None:
    if reply is None:
        return None
    seconds = {LatencyMetric.TTFT: reply.ttft, LatencyMetric.ITL: reply.itl, LatencyMetric.E2E: reply.e2e}[metric]
    return None if seconds is None or seconds < SHORTEST_SECONDS else seconds


TYPICAL_SECONDS = 0.2
"""The median time. Any would do: only ratios of times matter."""


POOR_PAST = 2.0
"""What a short past costs: bets on a slower canary are made from the stable requests seen so far, and those are the
fewer, and say the less, the more go to the canary and the wider times are spread. Measured by simulation."""


def expected_times(
    gate: LatencyGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions, *, temper: bool
) -> Flow:
    """Log-normal times of both arms; each canary's are all longer by a share `worse`."""
    edges = _edges(assumed.spread, float(worse.max()))
    canary, stable = _time_shares(edges, assumed.spread, worse), _time_shares(edges, assumed.spread, np.zeros(1))
    process = LatencyProcess(
        edges,
        quantile=gate.quantile,
        max_increase=gate.max_increase,
        tolerance=gate.tolerance,
        temper=False,
        leading=worse.shape,
    )
    counted = evidence_per_request(arrivals, assumed, temper=temper)
    share = arrivals.canary / (arrivals.canary + arrivals.stable)
    pods = np.broadcast_to(stable, (len(worse), 1, stable.shape[-1]))

    def feed(seconds: float) -> None:
        each = seconds * counted
        process.feed(canary * arrivals.canary * each, pods * arrivals.stable * each, seconds)

    return Flow(process, feed, worse_takes=1 + POOR_PAST * assumed.spread * share, fewest=EXACT_DRAWS + 1)


def _edges(spread: float, worst: float) -> Array:
    edges = sample_edges()
    reach = np.exp(4 * spread)
    inside = (edges >= TYPICAL_SECONDS / reach) & (edges <= TYPICAL_SECONDS * reach * (1 + worst))
    return np.asarray(edges[inside])


def _time_shares(edges: Array, spread: float, worse: Array) -> Array:
    """The share of requests in each bin, (E, K + 1)."""
    below = scipy.special.ndtr((np.log(edges / TYPICAL_SECONDS) - np.log1p(worse)[:, None]) / spread)
    return np.asarray(np.diff(below, prepend=0.0, append=1.0, axis=-1))


class LatencyKind(TestedGate[LatencyGate]):
    """How much longer the canary's requests take."""

    name = "latency"
    spec = settings = LatencyGate
    # Of times users know best.
    stages = (
        StageUse("shadow", ("probe",), by_default=True),
        StageUse("canary", ("users",), by_default=True),
    )
    from_batches = True
    scale = "percent"
    sample = "min_requests"
    margin = ("max_increase", 4.0)
    worst_regression = 4.0

    def tests(
        self, settings: LatencyGate, source: Source, conditions: Conditions
    ) -> Iterator[tuple[float, MetricTest]]:
        """One, of pairs or of requests."""
        paired = source == "probe"
        yield 1, PairedLatencyTest(settings) if paired else LatencyTest(settings, temper=conditions.temper)

    def flows(self, settings: LatencyGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        """As `TestedGate`."""
        if paired:
            yield partial(expected_pairs_of_times, settings.max_increase, settings.tolerance)
        else:
            yield partial(expected_times, settings, temper=temper)
