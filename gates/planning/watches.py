"""What the gates with statistics of their own will typically do: drift and burn rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from gates.burn.burn_rate import Burn
from gates.burn.evidence import Events, Look
from gates.burn.spec import BurnRateGate
from gates.drift.plan import requests_to_fail, requests_to_pass
from gates.drift.spec import DriftGate
from gates.model import Outcome
from gates.planning.course import EARLY
from gates.planning.expected import Arrivals, Assumptions, Whole
from gates.planning.forecast import Exposure, GateForecast, requests_by, told_by
from gates.terms import Source

BEYOND = 2.0
"""The regression asked about: so many times what is allowed."""
SINGLE_LOOKS = 40
GROWTH = 1.05
"""Of looks after these: what is decided late need not be known to the second."""
FURTHEST_SECONDS = 2 * 86400.0
LARGEST = 50.0
"""Times what is allowed; who drifts further is another model."""
SEARCH_STEPS = 7


def burn_forecast(
    settings: BurnRateGate, source: Source, exposure: Exposure, assumed: Assumptions, *, rollback: float, accept: float
) -> GateForecast:
    """A healthy canary has as many bad events as are expected, and no more than the SLO allows; all are requests."""
    arrivals = exposure.arrivals("burn_rate", source)
    healthy = _healthy(settings, assumed)
    stated = min(BEYOND * settings.slow.factor * settings.budget, 1.0)

    def at(bad: float, outcome: Outcome) -> float:
        return _burn_at(settings, arrivals, bad, outcome, rollback=rollback, accept=accept)

    passes = burn_passes(settings, source, exposure, assumed, rollback=rollback, accept=accept)
    fails = at(stated, Outcome.FAIL)
    timed, within = exposure.timed(source), exposure.within_seconds
    smallest = _smallest(lambda bad: at(bad, Outcome.FAIL) <= within, healthy, 1.0) if timed else None
    return GateForecast(
        gate="burn_rate",
        source=source,
        unit="requests",
        scale="points",
        canary_requests_to_pass=requests_by(passes, arrivals),
        seconds_to_pass=told_by(passes, arrivals) if timed else None,
        regression_share=stated - healthy,
        canary_requests_to_fail=requests_by(fails, arrivals),
        seconds_to_fail=told_by(fails, arrivals) if timed else None,
        smallest_regression_share=None if smallest is None else smallest - healthy,
        within_seconds=within,
        reachable=not timed or passes <= within,
    )


def burn_passes(
    settings: BurnRateGate, source: Source, exposure: Exposure, assumed: Assumptions, *, rollback: float, accept: float
) -> float:
    """Seconds until half of all healthy canaries have passed; infinity for never."""
    arrivals, healthy = exposure.arrivals("burn_rate", source), _healthy(settings, assumed)
    return _burn_at(settings, arrivals, healthy, Outcome.PASS, rollback=rollback, accept=accept)


def drift_passes(settings: DriftGate, source: Source, exposure: Exposure) -> float:
    """As `burn_passes`."""
    arrivals = exposure.arrivals("drift", source)
    requests = _drift_passes(settings, arrivals.stable / arrivals.canary)
    return math.inf if requests is None else requests / arrivals.canary


def drift_forecast(settings: DriftGate, source: Source, exposure: Exposure, *, rollback: float) -> GateForecast:
    """By the numbers of `gates.drift_plan`; regressions are told as times what is allowed."""
    arrivals = exposure.arrivals("drift", source)
    ratio = arrivals.stable / arrivals.canary

    def seconds(requests: int | None) -> float:
        return math.inf if requests is None else requests / arrivals.canary

    def fails(times: float) -> float:
        return seconds(_drift_fails(settings, times, ratio, rollback))

    passes, timed, within = drift_passes(settings, source, exposure), exposure.timed(source), exposure.within_seconds
    return GateForecast(
        gate="drift",
        source=source,
        unit="requests",
        scale="times",
        canary_requests_to_pass=requests_by(passes, arrivals),
        seconds_to_pass=told_by(passes, arrivals) if timed else None,
        regression_share=BEYOND,
        canary_requests_to_fail=requests_by(fails(BEYOND), arrivals),
        seconds_to_fail=told_by(fails(BEYOND), arrivals) if timed else None,
        smallest_regression_share=_smallest(lambda times: fails(times) <= within, 1.0, LARGEST) if timed else None,
        within_seconds=within,
        reachable=not timed or passes <= within,
    )


def _healthy(settings: BurnRateGate, assumed: Assumptions) -> float:
    """The share of bad events that is expected."""
    # Nobody knows how many requests are slow; an SLO that is kept leaves some of its budget.
    return settings.budget / 2 if settings.slower else min(assumed.error_rate, settings.budget)


@lru_cache(maxsize=1024)
def _burn_at(
    settings: BurnRateGate, arrivals: Arrivals, bad: float, outcome: Outcome, *, rollback: float, accept: float
) -> float:
    """When expected events bring that verdict; infinity for never."""
    burn, whole = Burn(settings, rollback=rollback, accept=accept), Whole((2,))
    elapsed, seconds = 0.0, arrivals.look
    while elapsed < FURTHEST_SECONDS:
        elapsed += seconds
        fine, failed = whole.of(np.asarray([1 - bad, bad]) * arrivals.canary * seconds)
        events = Events(total=int(fine + failed), bad=int(failed))
        burn.take(Look(time=elapsed, seconds=seconds, events=events))
        found = burn.verdict().outcome
        if found is outcome:
            return elapsed * EARLY
        if found is Outcome.FAIL:
            return math.inf
        seconds *= GROWTH if elapsed > SINGLE_LOOKS * arrivals.look else 1.0
    return math.inf


@lru_cache(maxsize=1024)
def _drift_passes(settings: DriftGate, stable_per_canary: float) -> int | None:
    return requests_to_pass(settings, stable_per_canary=stable_per_canary)


@lru_cache(maxsize=1024)
def _drift_fails(settings: DriftGate, times: float, stable_per_canary: float, alpha: float) -> int | None:
    return requests_to_fail(settings, times=times, stable_per_canary=stable_per_canary, alpha=alpha)


def _smallest(caught: Callable[[float], bool], low: float, high: float) -> float | None:
    """The smallest that is caught, to a few percent; None when not even `high` is."""
    if not caught(high):
        return None
    for _ in range(SEARCH_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if caught(middle) else (middle, high)
    return high
