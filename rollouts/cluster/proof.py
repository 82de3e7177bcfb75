"""Whether requests arrive where a route says they go. Pure.

A route is a wish. Fields that the API server dropped, a second route for the same host, a gateway that does not know a
filter: each looks right when it is read back, and users go elsewhere (argo-rollouts#4569).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum

ENOUGH_REQUESTS = 50
"""Fewer say nothing of a share."""

CERTAIN = 1e-6
"""A share that a right route would show more rarely than this is held against the route."""

SLACK = 0.5
"""Of the weight: arms are not scraped at the same moment, and connections are not all equally busy."""

LARGEST_SLACK = 0.15

ENOUGH_COPIES = 20
"""So many copies that were expected, and not one that came: the gateway does not copy."""

Counts = Mapping[str, float]
"""Requests answered by each engine of a version since it started."""


class Proof(Enum):
    """What arrivals say of a route."""

    HOLDS = "holds"
    OPEN = "open"
    """Too few requests to tell."""
    CONTRADICTED = "contradicted"


def gained(before: Counts, after: Counts) -> float:
    """What came between two looks; an engine that is new, or counts from 0 again, has all of its count from after."""
    return sum(
        count - before[engine] if count >= before.get(engine, math.inf) else count for engine, count in after.items()
    )


def share_of(weight: int, canary: float, stable: float) -> Proof:
    """Whether the canary got that percent of requests."""
    total = round(canary + stable)
    if total < ENOUGH_REQUESTS:
        return Proof.OPEN
    wanted, seen = weight / 100, canary / (canary + stable)
    if abs(seen - wanted) > min(wanted * SLACK, LARGEST_SLACK) and _odds(total, wanted, seen) < CERTAIN:
        return Proof.CONTRADICTED
    # Of a small weight nobody may have come yet; nobody is no proof that somebody would.
    return Proof.HOLDS if canary >= 1 else Proof.OPEN


def copies_of(percent: int, copies: float, stable: float) -> Proof:
    """Whether copies of what the stable got arrived at the canary."""
    if copies >= 1:
        return Proof.HOLDS
    return Proof.CONTRADICTED if stable * percent / 100 >= ENOUGH_COPIES else Proof.OPEN


def _odds(total: int, wanted: float, seen: float) -> float:
    """The most that a share so far off, on either side, has of probability: Chernoff's bound, exact enough here."""
    parts = ((seen, wanted), (1 - seen, 1 - wanted))
    return 2 * math.exp(-total * sum(mine * math.log(mine / theirs) for mine, theirs in parts if mine > 0))
