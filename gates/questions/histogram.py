"""Times of a batch as counts in bins, pod by pod: samples and buckets on one grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gates.evalues.exchange import Array
from gates.evalues.grid import count_samples, sample_edges
from gates.evidence import Arm, Batch, Buckets, PodEvidence, Times
from gates.spec import LatencyMetric

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


def pods_of(batch: Batch, arm: Arm) -> list[PodEvidence]:
    """The pods of one arm."""
    return [pod for pod in batch.arms if pod.arm is arm]
