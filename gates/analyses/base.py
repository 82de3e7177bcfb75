"""What every comparison has in common: evidence that the canary is worse, evidence that it is fine, words for both."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import numpy as np

from gates.evidence.batch import ArmName, Batch, Buckets, LatencyMetric, PodEvidence, Times
from gates.stats.e_process import Array, EvidenceProcess
from gates.stats.times import count_samples, sample_edges


class MetricTest(ABC):
    """One comparison of both arms on one source, asked again with every batch."""

    kind: str
    """What is compared, when a gate compares several things: `failed`, `refused`, `coverage`."""
    worse = "that it is worse than tolerated"
    fine = "that it is within the margin"
    sample = "requests"
    """What `seen` counts."""

    process: EvidenceProcess | None = None
    """What adds up the evidence; None while nothing has begun."""

    def __init__(self, kind: str, *, needed: int) -> None:
        """`needed` is what must have been seen of the canary before a pass, however clear the evidence."""
        self.kind, self.needed = kind, needed
        self.missing = ""
        """Why the last batch had nothing for this question, when it said so."""

    @abstractmethod
    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch, so many seconds after the one before."""

    @abstractmethod
    def restart(self) -> None:
        """Ask again whether the canary is fine; what speaks against it stays."""

    @property
    def log_worse(self) -> float:
        """Natural logarithm of the evidence that the canary is worse."""
        return float(self.process.log_worse) if self.process else 0.0

    @property
    def log_fine(self) -> float:
        """Natural logarithm of the evidence that it is within the margin."""
        return float(self.process.log_fine) if self.process else 0.0

    @property
    @abstractmethod
    def seen(self) -> int:
        """Requests of the canary, or pairs, since the last restart."""

    @abstractmethod
    def describe(self) -> str:
        """Both arms, the difference, what is allowed; or what is missing."""

    @abstractmethod
    def numbers(self) -> Mapping[str, float]:
        """What the description rests on; names carry their unit."""

    def auxiliary(self) -> Mapping[str, float]:
        """Extra numbers for charts; the description does not rest on them."""
        return {}


def as_ratio(log_evidence: float) -> float:
    """Evidence as a number, within what JSON and a plot can bear."""
    return math.exp(min(max(log_evidence, math.log(1e-12)), math.log(1e12)))


def as_odds(log_evidence: float) -> str:
    """Evidence as a person says it: `340:1`, or `1:12` when it speaks for the opposite."""
    # Beyond a million the number says nothing more.
    if log_evidence > math.log(1e6):
        return "over 1,000,000:1"
    if log_evidence < -math.log(1e6):
        return "under 1:1,000,000"
    ratio = math.exp(abs(log_evidence))
    shown = f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.2g}"
    return f"{shown}:1" if log_evidence >= 0 else f"1:{shown}"


def as_time(seconds: float) -> str:
    """A latency: `210 ms`, `1.25 s`."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"


MOST_PODS = 64
"""Stable pods that are told apart; a new one takes the place of the one seen longest ago. More at once share a slot."""


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


class PodSlots:
    """Gives each stable pod a place of its own in an array, for as long as there is room."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}

    def place(self, pods: Mapping[str, Array]) -> tuple[Array, list[int]]:
        """Counts (P, bins) of the pods in their slots, and the slots that changed hands."""
        for name in pods:
            if name in self._slots:
                # Moved to the end: the first in the dictionary is the one seen longest ago.
                self._slots[name] = self._slots.pop(name)
        taken_over = [self._take_slot(name, pods) for name in pods if name not in self._slots]
        width = next(iter(pods.values())).shape[-1] if pods else 1
        counts = np.zeros((max(self._slots.values(), default=0) + 1, width))
        for name, each in pods.items():
            counts[self._slots.get(name, MOST_PODS - 1)] += each
        return counts, [slot for slot in taken_over if slot is not None]

    def _take_slot(self, name: str, present: Mapping[str, Array]) -> int | None:
        """A slot for a new pod, if one is free; the answer is that slot when another pod had it before."""
        if len(self._slots) < MOST_PODS:
            self._slots[name] = len(self._slots)
            return None
        oldest = next(iter(self._slots))
        if oldest in present:
            return None
        self._slots[name] = self._slots.pop(oldest)
        return self._slots[name]


def pods_of(batch: Batch, arm: ArmName) -> list[PodEvidence]:
    """The pods of one arm."""
    return [pod for pod in batch.arms if pod.arm is arm]
