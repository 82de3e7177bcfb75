"""The nouns of planning: what a canary sees of traffic in one stage, and what a gate will typically make of it."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from gates.planning.expected import Arrivals
from gates.terms import Source
from tidegate.core.model import Value

ANY_RATE = 20.0
"""Requests a second when nobody says how many there are: needs hardly depend on it, and times are not told."""

Unit = Literal["requests", "pairs", "prompts"]
Scale = Literal["percent", "points", "score", "times"]


class Exposure(Value):
    """What of its users' traffic a canary sees in one stage, and for how long."""

    requests_per_second: float | None = Field(default=None, gt=0)
    """Of all users of a region; None when nobody knows."""
    percent: float = Field(default=100, gt=0, le=100)
    """Of these, what reaches the canary."""
    mirrored: bool = False
    """Whether those are copies, and stable answers all users."""
    pairs_per_second: float | None = Field(default=None, gt=0)
    """Prompts of our own that go to both arms."""
    judged: float = Field(default=1.0, gt=0, le=1)
    """The share of pairs that a judge is asked about."""
    within_seconds: float = Field(gt=0)
    look_seconds: float = Field(default=10.0, gt=0)

    def arrivals(self, gate: str, source: Source) -> Arrivals:
        """What a gate gets to see."""
        if source == "probe":
            pairs = (self.pairs_per_second or 1.0) * (self.judged if gate == "judge" else 1.0)
            return Arrivals(canary=pairs, stable=pairs, look=self.look_seconds)
        users, part = self.requests_per_second or ANY_RATE, self.percent / 100
        stable = users if self.mirrored else users * max(1 - part, 0.001)
        return Arrivals(canary=users * part, stable=stable, look=self.look_seconds)

    def timed(self, source: Source) -> bool:
        """Whether anybody said how much traffic there is."""
        return (self.pairs_per_second if source == "probe" else self.requests_per_second) is not None


class GateForecast(Value):
    """What one gate will typically do on the word of one source."""

    gate: str
    source: Source | None = None
    """None for the prompts of a golden set."""
    unit: Unit
    """Of what the canary must have answered."""
    scale: Scale
    """How regressions are meant: percent of stable's, percentage points of requests, points of a score in 0..1, or
    times what is allowed."""
    canary_requests_to_pass: int | None
    """Until half of all healthy canaries have passed; None when they never do."""
    seconds_to_pass: float | None = None
    """None when nobody knows the traffic, or never."""
    regression_share: float
    """The regression of the next two: of the margin's size, as a share; twice what is allowed, of a fixed bound."""
    canary_requests_to_fail: int | None
    """Until half of all canaries that are worse by this are caught; None when they never are."""
    seconds_to_fail: float | None = None
    smallest_regression_share: float | None = None
    """What is caught before the time is over, more often than not; None when nothing is, or nobody knows."""
    within_seconds: float | None = None
    """How long the stage may take."""
    reachable: bool = True
    """Whether a healthy canary passes in time, more often than not; true when nobody knows the traffic."""
    remedy: tuple[str, ...] = ()
    """Changes, each of which alone would let eight of ten healthy canaries pass in time; empty when nothing must."""


def requests_by(seconds: float, arrivals: Arrivals) -> int | None:
    """The canary's until then; None for never."""
    return math.ceil(seconds * arrivals.canary - 1e-6) if math.isfinite(seconds) else None


def told_by(seconds: float, arrivals: Arrivals) -> float | None:
    """When the look is over that shows it; None for never."""
    return math.ceil(seconds / arrivals.look - 1e-6) * arrivals.look if math.isfinite(seconds) else None
