"""A quantile of both arms from histograms or raw samples: what is counted, how it is told, what plans expect of it.

Of times and of any other numbers above 0: only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from gates.evidence.batch import ArmName, Buckets, Times
from gates.stats.e_process import Array
from gates.stats.exchange import EXACT_DRAWS
from gates.stats.pod_slots import PodSlots
from gates.stats.times import LatencyProcess, count_samples, sample_edges
from gates.traffic import ArrivalRates, Assumptions, Flow, evidence_per_request


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


@dataclass(frozen=True)
class QuantileMargin:
    """Which quantile is compared, and by what share of stable's the canary's may exceed it."""

    quantile: float
    max_increase: float
    tolerance: float


@dataclass(frozen=True)
class PodSamples:
    """What one pod of one arm counted."""

    arm: ArmName
    pod: str
    times: Times


class ArmHistograms:
    """Both arms' counts on one grid, on their way into the process that judges them."""

    def __init__(self, margin: QuantileMargin, *, temper: bool) -> None:
        self._margin, self._temper = margin, temper
        self.process: LatencyProcess | None = None
        """None while there was nothing that says on which grid."""
        self._edges: Array = sample_edges()
        self._slots = PodSlots()
        self._seen: dict[ArmName, Array] = {}

    def take(self, found: Sequence[PodSamples], seconds: float) -> str:
        """Learn from one batch; says why when its buckets do not fit those before, and then it gives no evidence."""
        try:
            self._learn(found, seconds)
        except UnfitTimes as unfit:
            return str(unfit)
        return ""

    def _learn(self, found: Sequence[PodSamples], seconds: float) -> None:
        process = self._begun(grid_of(each.times for each in found))
        if process is None:
            return
        counts = [(each, counted(each.times, self._edges)) for each in found if each.times]
        canaries = [count for each, count in counts if each.arm is ArmName.CANARY]
        stable, reused = self._slots.place({each.pod: count for each, count in counts if each.arm is ArmName.STABLE})
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
        """Whether the canary is fine is asked again; what is told is counted again too, because shares changed."""
        self._seen.clear()
        if self.process:
            self.process.restart_acceptance()

    def count(self, arm: ArmName) -> int:
        """Of one arm since the last restart."""
        return int(np.sum(self._seen.get(arm, 0.0)))

    def nothing_of(self, what: str, missing: str) -> str | None:
        """The description while an arm has none of what is counted, with what is missing; None once both have."""
        for arm, name in ((ArmName.CANARY, "the canary"), (ArmName.STABLE, "stable")):
            if not self.count(arm):
                return f"no {what} of {name}" + (f": {missing}" if missing else "")
        return None

    @property
    def seen(self) -> int:
        """Of the canary, once stable has any."""
        return self.count(ArmName.CANARY) if self.count(ArmName.STABLE) else 0

    def quantile(self, arm: ArmName) -> float:
        """Within its bin evenly spread; beyond the last edge, that edge."""
        reached = np.cumsum(self._seen[arm])
        rank = self._margin.quantile * reached[-1]
        place = int(np.searchsorted(reached, rank * (1 - 1e-12)))
        if place >= len(self._edges):
            return float(self._edges[-1])
        low, below = (self._edges[place - 1], reached[place - 1]) if place else (0.0, 0.0)
        return float(low + (self._edges[place] - low) * (rank - below) / (reached[place] - below))

    @property
    def design_effect(self) -> float:
        """By which evidence is tempered."""
        return float(self.process.design_effect.max()) if self.process else 1.0

    def numbers(self, name: str, unit: str, counted_as: str) -> Mapping[str, float]:
        """What a verdict rests on: both quantiles under `name`, and the counts, in words of the gate."""
        arms = (ArmName.CANARY, ArmName.STABLE)
        values = {f"{name}_{arm}{unit}": self.quantile(arm) for arm in arms if self.count(arm)}
        counts = {f"{arm}_{counted_as}": float(self.count(arm)) for arm in arms}
        return values | counts | {"design_effect": self.design_effect}

    def _begun(self, edges: Array | None) -> LatencyProcess | None:
        if self.process is None and edges is not None:
            margin, self._edges = self._margin, edges
            self.process = LatencyProcess(
                edges,
                quantile=margin.quantile,
                max_increase=margin.max_increase,
                tolerance=margin.tolerance,
                temper=self._temper,
            )
        return self.process

    def _note(self, canary: Array, stable: Array) -> None:
        for arm, counts in ((ArmName.CANARY, canary), (ArmName.STABLE, stable)):
            self._seen[arm] = self._seen.get(arm, 0.0) + counts


TYPICAL_SECONDS = 0.2
"""The median time. Any would do: only ratios of times matter."""


POOR_PAST = 2.0
"""What a short past costs: bets on a slower canary are made from the stable requests seen so far, and those are the
fewer, and say the less, the more go to the canary and the wider times are spread. Measured by simulation."""


def expected_times(
    margin: QuantileMargin, arrivals: ArrivalRates, worse: Array, assumed: Assumptions, *, temper: bool
) -> Flow:
    """Log-normal times of both arms; each canary's are all longer by a share `worse`."""
    edges = _edges(assumed.spread, float(worse.max()))
    canary, stable = _time_shares(edges, assumed.spread, worse), _time_shares(edges, assumed.spread, np.zeros(1))
    process = LatencyProcess(
        edges,
        quantile=margin.quantile,
        max_increase=margin.max_increase,
        tolerance=margin.tolerance,
        temper=False,
        leading=worse.shape,
    )
    part = evidence_per_request(arrivals, assumed, temper=temper)
    share = arrivals.canary / (arrivals.canary + arrivals.stable)
    pods = np.broadcast_to(stable, (len(worse), 1, stable.shape[-1]))

    def feed(seconds: float) -> None:
        each = seconds * part
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
