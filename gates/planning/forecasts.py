"""What a gate will typically do, told before anything is deployed.

After how many requests, and when, it says yes to a healthy canary; how soon it catches a regression of the
margin's size; and which regressions it cannot see in the time it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gates.evalues.paired import Lower
from gates.planning.course import Course, Settings, run_course
from gates.planning.expected import Assumptions
from gates.planning.forecast import Exposure, GateForecast, Scale, requests_by, told_by
from gates.planning.watches import burn_forecast, burn_passes, drift_forecast, drift_passes
from gates.spec import QualityGate
from gates.terms import Source, Terms, questions

LIKELY = 1.5
"""Eight of ten healthy canaries have passed by so many times the typical time. Measured: 1.0 to 1.8 times."""
MOST_PROMPTS = 10_000

SCALES: Mapping[str, Scale] = {"latency": "percent", "errors": "points"}


def forecasts(terms: Terms, exposure: Exposure, assumed: Assumptions | None = None) -> tuple[GateForecast, ...]:
    """One for each gate and each source that counts for it."""
    assumed = assumed or Assumptions()
    pairs = [(gate, source) for gate in terms.gates for source in terms.sources_of(gate)]
    return tuple(forecast(terms, gate, source, exposure, assumed) for gate, source in pairs)


def forecast(terms: Terms, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> GateForecast:
    """One gate on one source, as yet without remedies."""
    if terms.burn_rate and gate == "burn_rate":
        rollback = terms.rollback / len(terms.gates)
        return burn_forecast(terms.burn_rate, source, exposure, assumed, rollback=rollback, accept=terms.accept)
    if terms.drift and gate == "drift":
        return drift_forecast(terms.drift, source, exposure, rollback=terms.rollback / len(terms.gates))
    course = course_of(terms, gate, source, exposure, assumed)
    arrivals, within = exposure.arrivals(gate, source), exposure.within_seconds
    passes, fails = max(course.passes, needed(settings_of(terms, gate)) / arrivals.canary), course.fails[0]
    timed = exposure.timed(source)
    return GateForecast(
        gate=gate,
        source=source,
        unit="pairs" if source == "probe" else "requests",
        scale=SCALES.get(gate, "score"),
        canary_requests_to_pass=requests_by(passes, arrivals),
        seconds_to_pass=told_by(passes, arrivals) if timed else None,
        regression_share=course.effects[0],
        canary_requests_to_fail=requests_by(fails, arrivals),
        seconds_to_fail=told_by(fails, arrivals) if timed else None,
        smallest_regression_share=course.smallest if timed else None,
        within_seconds=within,
        reachable=not timed or passes <= within,
    )


def own_passes(terms: Terms, gate: str, source: Source, exposure: Exposure, assumed: Assumptions) -> float:
    """Seconds until a healthy canary typically passes a gate with statistics of its own; infinity for never."""
    if gate == "drift":
        assert terms.drift is not None, "the terms do not ask drift"
        return drift_passes(terms.drift, source, exposure)
    assert terms.burn_rate is not None, "the terms do not ask burn_rate"
    rollback = terms.rollback / len(terms.gates)
    return burn_passes(terms.burn_rate, source, exposure, assumed, rollback=rollback, accept=terms.accept)


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
