"""From the way users are spread now to another one, one write after the other, each of them safe by itself. Pure.

Users of the canary's Service leave it before it leads elsewhere. Where another version becomes stable, its Service is
the first write: it moves all users of the stable at once, to engines that are up, and the old ones stay up meanwhile.
The one who dies in between leaves a region that can be read, and the next one goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollouts.base import RegionSplit
from rollouts.multinode.snapshot import Placement


@dataclass(frozen=True)
class NameStable:
    """Let the stable's Service lead to that version, and note which one was before."""

    version: str
    previous: str | None


@dataclass(frozen=True)
class NameCanary:
    """Let the canary's Service lead to that version; None to the stable's, so that no weight leads to nobody."""

    version: str | None


@dataclass(frozen=True)
class SetWeights:
    """Give the route these weights."""

    weight: int
    mirror: int


Step = NameStable | NameCanary | SetWeights


def next_step(now: Placement, wanted: RegionSplit) -> Step | None:
    """The next write; None when nothing is left to do, or nothing serves."""
    there = now.split
    if wanted.stable is None:
        return None
    if wanted.stable != there.stable:
        return NameStable(wanted.stable, wanted.previous)
    if wanted.canary != there.canary or not now.canary_named:
        return SetWeights(0, 0) if there.weight or there.mirror else NameCanary(wanted.canary)
    if wanted.previous != there.previous:
        return NameStable(wanted.stable, wanted.previous)
    if (wanted.weight, wanted.mirror) != (there.weight, there.mirror):
        return SetWeights(wanted.weight, wanted.mirror)
    return None
