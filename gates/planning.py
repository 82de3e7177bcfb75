"""What a gate will typically do, told before anything is deployed.

After how many requests, and when, it says yes to a healthy canary; how soon it catches a regression of the
margin's size; and which regressions it cannot see in the time it is given.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from gates.course import Course, Settings, run_course
from gates.evalues.paired import Lower
from gates.expected import Arrivals, Assumptions
from gates.spec import QualityGate
from gates.terms import Source, Terms, questions
from tidegate.core.model import Value

LIKELY = 1.5
"""Eight of ten healthy canaries have passed by so many times the typical time. Measured: 1.0 to 1.8 times."""
ANY_RATE = 20.0
"""Requests a second when nobody says how many there are: needs hardly depend on it, and times are not told."""
MOST_PROMPTS = 10_000

Unit = Literal["requests", "pairs", "prompts"]
Scale = Literal["percent", "points", "score"]
SCALES: dict[str, Scale] = {"latency": "percent", "errors": "points"}


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
    """How regressions are meant: percent of stable's, percentage points of requests, points of a score in 0..1."""
    canary_requests_to_pass: int | None
    """Until half of all healthy canaries have passed; None when they never do."""
    seconds_to_pass: float | None = None
    """None when nobody knows the traffic, or never."""
    regression_share: float
    """The regression of the next two: of the margin's size, as a share in 0..1."""
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


def forecasts(terms: Terms, exposure: Exposure, assumed: Assumptions | None = None) -> tuple[GateForecast, ...]:
    """One for each gate and each source that counts for it."""
    assumed = assumed or Assumptions()
    pairs = [(gate, source) for gate in terms.gates for source in terms.sources_of(gate)]
    return tuple(forecast(terms, gate, source, exposure, assumed) for gate, source in pairs)


def forecast(terms: Terms, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> GateForecast:
    """One gate on one source, as yet without remedies."""
    course = course_of(terms, gate, source, exposure, assumed)
    arrivals, within = exposure.arrivals(gate, source), exposure.within_seconds
    passes, fails = max(course.passes, needed(settings_of(terms, gate)) / arrivals.canary), course.fails[0]
    timed = exposure.timed(source)
    return GateForecast(
        gate=gate,
        source=source,
        unit="pairs" if source == "probe" else "requests",
        scale=SCALES.get(gate, "score"),
        canary_requests_to_pass=_requests(passes, arrivals),
        seconds_to_pass=_seconds(passes, arrivals) if timed else None,
        regression_share=course.effects[0],
        canary_requests_to_fail=_requests(fails, arrivals),
        seconds_to_fail=_seconds(fails, arrivals) if timed else None,
        smallest_regression_share=course.smallest if timed else None,
        within_seconds=within,
        reachable=not timed or passes <= within,
    )


def course_of(terms: Terms, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> Course:
    """When a gate's evidence suffices, whatever sample it asks for besides."""
    # The first question of a gate is what a regression shows itself in; its weight is part of the answer.
    weight = max(asked.weight for asked, _ in questions(terms) if (asked.gate, asked.source) == (gate, source))
    return run_course(
        settings_of(terms, gate),
        exposure.arrivals(gate, source),
        assumed,
        paired=source == "probe",
        temper=terms.temper,
        log_pass=-math.log(terms.accept),
        log_fail=-math.log(terms.rollback * weight),
        within_seconds=exposure.within_seconds,
    )


def settings_of(terms: Terms, gate: str) -> Settings:
    """The settings of a gate that the terms ask."""
    found = {"latency": terms.latency, "errors": terms.errors, "agreement": terms.agreement, "judge": terms.judge}
    settings = found[gate]
    assert settings is not None, f"the terms do not ask {gate}"
    return settings


def needed(settings: Settings) -> int:
    """What must have been seen of the canary before a pass, however clear the evidence."""
    return settings.min_requests if hasattr(settings, "min_requests") else settings.min_pairs


def quality_forecast(settings: QualityGate, *, prompts: int, rollback: float) -> GateForecast:
    """A golden set passes a version at once, or never; what it can prove depends on how many prompts it has.

    `rollback` is the gate's share of the delivery's chance of a false rollback. The regression asked about is
    the worst of all: every prompt that the champion answers rightly is answered wrongly.
    """
    log_fail = -math.log(rollback)

    def proven(wrong: int, of: int) -> bool:
        drops = Lower(max_drop=0.0)
        drops.feed(np.repeat([1.0, 0.0], [wrong, of - wrong]), 0.0)
        return float(drops.log_worse) >= log_fail and wrong > settings.max_drop * of

    wrong = next((count for count in range(1, prompts + 1) if proven(count, prompts)), None)
    return GateForecast(
        gate="quality",
        unit="prompts",
        scale="score",
        canary_requests_to_pass=settings.min_prompts,
        regression_share=1.0,
        canary_requests_to_fail=next((count for count in range(1, MOST_PROMPTS) if proven(count, count)), None),
        smallest_regression_share=None if wrong is None else wrong / prompts,
        reachable=prompts >= settings.min_prompts,
    )


def _requests(seconds: float, arrivals: Arrivals) -> int | None:
    return math.ceil(seconds * arrivals.canary - 1e-6) if math.isfinite(seconds) else None


def _seconds(seconds: float, arrivals: Arrivals) -> float | None:
    """Nobody knows before the look that shows it."""
    return math.ceil(seconds / arrivals.look - 1e-6) * arrivals.look if math.isfinite(seconds) else None
