"""The power curve of a gate: when expected traffic suffices to pass the healthy canary, and to catch worse ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gates.analyses.base import TestedGate
from gates.stats.e_process import Array
from gates.traffic import EARLY, ArrivalRates, Assumptions, Flow

GROWTH = 1.1
"""Of steps of time: what is decided late need not be known to the second."""
FURTHEST_SECONDS = 2 * 86400.0
SIZES = (0.07, 0.15, 0.3, 0.5, 0.7, 1.5, 2.5, 5.0, 10.0, 20.0)
"""Regressions next to the stated one, as multiples of what it exceeds the tolerance by."""


class PowerCurve(NamedTuple):
    """When evidence typically suffices, in seconds from the first request; infinity for never."""

    passes: float
    """That the healthy canary is within the margin."""
    effects: tuple[float, ...]
    """Regressions in the unit of the gate's margin: first the stated one, then others that rise."""
    fails: tuple[float, ...]
    """That each of these is worse than tolerated."""
    smallest: float | None
    """The regression that is typically caught just when the stage ends; None when not even a large one is."""


@lru_cache(maxsize=1024)
def power_curve(
    settings: TestedGate,
    arrivals: ArrivalRates,
    assumed: Assumptions,
    *,
    paired: bool,
    temper: bool,
    log_pass: float,
    log_fail: float,
    within_seconds: float,
) -> PowerCurve:
    """Let traffic flow until both verdicts are known and the stage's time is over; alike regions share one run."""
    effects = (settings.regression(assumed), *_sizes(settings, assumed))
    first, *others = (
        _run(flow, arrivals, log_pass, log_fail, within_seconds)
        for flow in settings.flows(arrivals, np.asarray((0.0, *effects)), assumed, paired=paired, temper=temper)
    )
    passes = max(run.fine.at[0] for run in (first, *others))
    return PowerCurve(float(passes), effects, tuple(first.worse.at[1:].tolist()), _smallest(first, effects))


@lru_cache(maxsize=4096)
def passes_by(
    settings: TestedGate,
    arrivals: ArrivalRates,
    assumed: Assumptions,
    *,
    paired: bool,
    temper: bool,
    log_pass: float,
    limit_seconds: float,
) -> bool:
    """Whether the healthy canary's evidence typically suffices by then: a shorter run, for searches."""
    return all(
        _fine_by(flow, arrivals, log_pass, limit_seconds)
        for flow in settings.flows(arrivals, np.zeros(1), assumed, paired=paired, temper=temper)
    )


def _fine_by(flow: Flow, arrivals: ArrivalRates, log_pass: float, limit_seconds: float) -> bool:
    fine, elapsed = _Crossing(log_pass, 1, limit_seconds), 0.0
    for seconds in _steps(arrivals, flow):
        flow.feed(seconds)
        fine.note(flow.evidence.log_fine, elapsed * EARLY, (elapsed + seconds) * EARLY)
        elapsed += seconds
        if np.isfinite(fine.at[0]) or elapsed * EARLY > limit_seconds:
            break
    return bool(fine.at[0] <= limit_seconds)


class _Crossing:
    """When each lane's evidence first reaches what is needed, and what it is when the stage ends."""

    def __init__(self, needed: float, lanes: int, ends: float) -> None:
        self._needed, self._before, self._ends = needed, np.zeros(lanes), ends
        self.at = np.full(lanes, np.inf)
        self.part_in_the_end = np.zeros(lanes)
        """Of what is needed."""

    def note(self, log_evidence: Array, begun: float, ended: float) -> None:
        new = np.isinf(self.at) & (log_evidence >= self._needed)
        gained = log_evidence - self._before
        self.at[new] = begun + (ended - begun) * (self._needed - self._before[new]) / gained[new]
        if begun < self._ends <= ended:
            reached = self._before + gained * (self._ends - begun) / (ended - begun)
            self.part_in_the_end = reached / self._needed
        self._before = log_evidence


class _Run(NamedTuple):
    fine: _Crossing
    worse: _Crossing


def _run(flow: Flow, arrivals: ArrivalRates, log_pass: float, log_fail: float, within_seconds: float) -> _Run:
    """Feed one comparison until its verdicts are known and the stage is over."""
    lanes = len(flow.evidence.log_worse)
    takes = EARLY * flow.worse_takes
    run = _Run(_Crossing(log_pass, lanes, within_seconds), _Crossing(log_fail, lanes, within_seconds))
    elapsed = 0.0
    for seconds in _steps(arrivals, flow):
        flow.feed(seconds)
        elapsed, begun = elapsed + seconds, elapsed
        run.fine.note(flow.evidence.log_fine, begun * EARLY, elapsed * EARLY)
        run.worse.note(flow.evidence.log_worse, begun * takes, elapsed * takes)
        if elapsed * EARLY >= within_seconds and np.isfinite([run.fine.at[0], run.worse.at[1]]).all():
            break
    return run


def _smallest(run: _Run, effects: tuple[float, ...]) -> float | None:
    """Between two sizes, evidence is taken to grow with the square of the regression."""
    order = np.argsort(effects)
    sizes, parts = np.asarray(effects)[order], run.worse.part_in_the_end[1:][order]
    caught = np.flatnonzero(parts >= 1)
    if not len(caught):
        return None
    first = int(caught[0])
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
