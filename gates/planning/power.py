"""When expected traffic suffices to pass the healthy canary, and to catch worse ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gates.analyses.base import TestedGate
from gates.stats.e_process import Array
from gates.traffic import EARLY, ArrivalRates, Assumptions, Expected, Flow

GROWTH = 1.1
"""Of steps of time: what is decided late need not be known to the second."""
FURTHEST_SECONDS = 2 * 86400.0
SIZES = (0.07, 0.15, 0.3, 0.5, 0.7, 1.5, 2.5, 5.0, 10.0, 20.0)
"""Regressions next to the stated one, as multiples of what it exceeds the tolerance by."""


@lru_cache(maxsize=4096)
def seconds_to_pass(settings: TestedGate, expected: Expected, log_pass: float) -> float:
    """Until evidence and sample typically suffice for the healthy canary; infinity for never."""
    arrivals = expected.arrivals
    reached = [_reached(flow, arrivals, log_pass, worse=False).at[0] for flow in settings.flows(expected, np.zeros(1))]
    return float(max(*reached, settings.needed() / arrivals.canary))


class Caught(NamedTuple):
    """Which regressions are caught, in the unit of the gate's margin, and when."""

    regression: float
    """The stated one."""
    seconds: float
    """Until that is typically caught; infinity for never."""
    smallest: float | None
    """What is typically caught just when the stage ends; None when not even a large one is."""


@lru_cache(maxsize=1024)
def caught(settings: TestedGate, expected: Expected, log_fail: float, *, within_seconds: float) -> Caught:
    """Let traffic flow until the stated regression is caught and the stage's time is over; alike regions share it."""
    effects = np.asarray((settings.regression(expected.assumed), *_sizes(settings, expected.assumed)))
    flow = next(settings.flows(expected, effects))
    found = _reached(flow, expected.arrivals, log_fail, worse=True, ends=within_seconds)
    return Caught(float(effects[0]), float(found.at[0]), _smallest(effects, found.part_in_the_end))


class _Reached(NamedTuple):
    at: Array
    """When each lane's evidence first reaches what is needed, in seconds from the first request."""
    part_in_the_end: Array
    """Of what is needed, when the stage ends."""


def _reached(flow: Flow, arrivals: ArrivalRates, needed: float, *, worse: bool, ends: float = 0.0) -> _Reached:
    """Feed one comparison until the first lane's verdict is known and the stage is over."""
    lanes = len(flow.evidence.log_worse)
    at, part, before = np.full(lanes, np.inf), np.zeros(lanes), np.zeros(lanes)
    pace = EARLY * (flow.worse_takes if worse else 1.0)
    ended = 0.0
    for seconds in _steps(arrivals, flow):
        flow.feed(seconds)
        log_evidence = flow.evidence.log_worse if worse else flow.evidence.log_fine
        begun, ended = ended, ended + seconds * pace
        gained = log_evidence - before
        new = np.isinf(at) & (log_evidence >= needed)
        at[new] = begun + (ended - begun) * (needed - before[new]) / gained[new]
        if begun < ends <= ended:
            part = (before + gained * (ends - begun) / (ended - begun)) / needed
        before = log_evidence
        if ended >= ends and np.isfinite(at[0]):
            break
    return _Reached(at, part)


def _smallest(effects: Array, parts: Array) -> float | None:
    """Between two sizes, evidence is taken to grow with the square of the regression."""
    order = np.argsort(effects)
    sizes, parts = effects[order], parts[order]
    enough = np.flatnonzero(parts >= 1)
    if not len(enough):
        return None
    first = int(enough[0])
    if not first:
        return float(sizes[0])
    roots = np.sqrt(np.maximum(parts[first - 1 : first + 1], 0))
    return float(np.interp(1.0, roots, sizes[first - 1 : first + 1]))


def _sizes(settings: TestedGate, assumed: Assumptions) -> tuple[float, ...]:
    """Other regressions, from hardly tolerable to absurd."""
    tolerated = settings.tolerated()
    found = (tolerated + (settings.regression(assumed) - tolerated) * each for each in SIZES)
    return tuple(size for size in found if size < settings.worst_regression)


def _steps(arrivals: ArrivalRates, flow: Flow) -> Iterator[float]:
    """First single looks, then ever longer steps: expected evidence only adds up."""
    seconds = max(arrivals.look, flow.fewest / arrivals.canary)
    elapsed, end = 0.0, min(FURTHEST_SECONDS, flow.most / arrivals.canary)
    while elapsed < end:
        yield seconds
        elapsed += seconds
        seconds *= GROWTH
