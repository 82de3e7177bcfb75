"""Serving goes from the pods of one workload to those of another, part by part where there is no room for both. Pure.

Users reach both: one Service selects them by the labels that all of them have. At each moment as many pods are ready as
are wanted: the one that takes over is asked for more first, and the other gives away no more than are ready there.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.core.model import Value


class PodCounts(Value):
    """One workload and its pods."""

    replicas: int
    """That it is asked for."""
    ready: int
    pods: int
    """All of them; those that start or end hold their place as well."""

    @property
    def is_whole(self) -> bool:
        """Whether all that were asked for are ready."""
        return self.ready >= self.replicas

    @property
    def held(self) -> int:
        """Pods that have, or will have, a place on a node."""
        return max(self.replicas, self.pods)

    @property
    def counted(self) -> int:
        """Ready pods that stay: those above `replicas` are about to go."""
        return min(self.ready, self.replicas)


class Scale(NamedTuple):
    """The next number of one of the two."""

    taking: bool
    """Whether of the one that takes over."""
    replicas: int


def next_scale(
    giving: PodCounts, taking: PodCounts, wanted: int, surge: int, *, may_lower: bool = True
) -> Scale | None:
    """The next step until the one that takes over has all; None where pods have to come or go first, or it has.

    Args:
        giving: the workload that serves.
        taking: the one that takes over.
        wanted: ready pods that users have at each moment.
        surge: pods beyond `wanted` that there may be at once, at least 1.
        may_lower: whether `giving` may give pods away to make room; no more than that.
    """
    if not taking.is_whole or taking.replicas >= wanted:
        return None
    free = wanted + surge - giving.held - taking.held
    if free > 0:
        return Scale(taking=True, replicas=min(wanted, taking.replicas + free))
    keep = kept(taking, wanted)
    return Scale(taking=False, replicas=keep) if may_lower and giving.replicas > keep else None


def kept(taking: PodCounts, wanted: int) -> int:
    """How many pods the other one has to keep."""
    return max(0, wanted - taking.counted)
