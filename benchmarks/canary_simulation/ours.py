"""tidegate's gate next to its peers: the same engine that judges one delivery, over thousands side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.canary_simulation.deciders import Times
from benchmarks.canary_simulation.load import LOOK_SECONDS
from benchmarks.canary_simulation.samples import Arm, Array, Grid, Look
from benchmarks.canary_simulation.scenarios import Question
from gates.stats.binary import FailureProcess
from gates.stats.paired import PairedScoresProcess
from gates.stats.times import LatencyProcess
from gates.stats.warmth import CachedShares

UNAWARE = "tidegate, caches not looked at"
MAX_COLDER = 0.05
"""The latency gate's default."""
ALPHA, BETA = 0.01, 0.05
"""Chance of rolling back a good version, and of accepting one at a margin, over the whole delivery."""
TTFT_GRID, ITL_GRID = Grid(low=0.004, ratio=1.05, bins=178), Grid(low=0.006, ratio=1.05, bins=82)
"""The engine's own width of bins, with room below the fastest and above the slowest: a first bin that held 1 % of all
requests would hide from the engine how rare fast ones are."""


@dataclass(frozen=True)
class Margins:
    """What the operator still accepts, and below which pods may differ."""

    ttft: float = 0.2
    itl: float = 0.2
    errors: float = 0.01
    judge: float = 0.1
    tolerance: float = 0.02


def _kinds(arm: Arm) -> Array:
    return np.stack([arm.requests - arm.errors, arm.errors], axis=-1).astype(np.float64)


COUNTS: Mapping[str, Callable[[Arm], Array]] = {
    "errors": _kinds,
    "ttft": lambda arm: arm.ttft.pod_counts(TTFT_GRID),
    "itl": lambda arm: arm.itl.pod_counts(ITL_GRID),
}


class Counted:
    """One look as the engine reads it: counts by metric, each counted once, when somebody asks."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._kept: dict[tuple[str, str], Array] = {}

    def canary(self, metric: str) -> Array:
        """Of all its pods together: (deliveries, bins)."""
        return np.asarray(self._pods("canary", metric).sum(axis=1))

    def stable(self, metric: str) -> Array:
        """Of each pod: (deliveries, pods, bins)."""
        return self._pods("stable", metric)

    @property
    def cached(self) -> Array:
        """Of the canary and of stable, (deliveries, 2, 2), as `CachedShares` takes it."""
        return np.stack([self._look.canary.cached, self._look.stable.cached], axis=1)

    @property
    def drop(self) -> Array:
        """Of the judge's score, within pairs: (deliveries, pairs)."""
        return self._look.stable_scores - self._look.canary_scores

    def _pods(self, arm: Literal["canary", "stable"], metric: str) -> Array:
        if (arm, metric) not in self._kept:
            self._kept[arm, metric] = COUNTS[metric](self._look.canary if arm == "canary" else self._look.stable)
        return self._kept[arm, metric]


Engine = FailureProcess | LatencyProcess | PairedScoresProcess


class Gate(Times):
    """One budget over its metrics: the mean of their evidence rolls back, each of them must accept."""

    def __init__(
        self, name: str, deliveries: int, engines: Mapping[str, Engine], *, max_colder: float | None = None
    ) -> None:
        """Of a canary whose cache is colder by more than `max_colder` no time counts; None where nobody tells."""
        super().__init__(name, deliveries)
        self._engines, self._max_colder = engines, max_colder
        self._cached = CachedShares((deliveries,))
        self._log_best = np.full((len(engines), deliveries), -np.inf)

    def learn(self, counted: Counted) -> None:
        """A look at the stable arm before there was a canary."""
        self._cached.cold(counted.cached, counted.cached[..., 1], 1.0)
        for metric, engine in self._engines.items():
            if not isinstance(engine, PairedScoresProcess):
                engine.learn(counted.stable(metric), LOOK_SECONDS)

    def feed_counted(self, counted: Counted, seconds: float) -> None:
        """See one more look."""
        tells = np.ones(len(self.undecided))
        if self._max_colder is not None:
            tells = tells - self._cached.cold(counted.cached, counted.cached[..., 1], self._max_colder)
        for metric, engine in self._engines.items():
            if isinstance(engine, PairedScoresProcess):
                engine.feed(counted.drop, LOOK_SECONDS)
            else:
                canary = counted.canary(metric) * (tells[:, None] if isinstance(engine, LatencyProcess) else 1)
                engine.feed(canary, counted.stable(metric), LOOK_SECONDS)
        worse = np.stack([engine.log_worse for engine in self._engines.values()])
        self.roll_back(np.logaddexp.reduce(worse, axis=0) - np.log(len(worse)) >= -np.log(ALPHA), seconds)
        fine = np.stack([engine.log_fine for engine in self._engines.values()])
        self._log_best = np.maximum(self._log_best, fine)
        # As in a trial: shown once is shown, unless what followed has taken it back.
        self.accept(((self._log_best >= -np.log(BETA)) & (fine >= 0)).all(axis=0), seconds)


def engines(deliveries: int, margins: Margins, *, temper: bool) -> dict[str, Engine]:
    """The four metrics, at the margins."""
    shape = (deliveries,)

    def slower(grid: Grid, margin: float) -> LatencyProcess:
        edges, tolerance = np.exp(grid.log_edges), margins.tolerance
        return LatencyProcess(
            edges, quantile=0.95, max_increase=margin, tolerance=tolerance, temper=temper, leading=shape
        )

    return {
        "errors": FailureProcess(max_increase=margins.errors, temper=temper, leading=shape),
        "ttft": slower(TTFT_GRID, margins.ttft),
        "itl": slower(ITL_GRID, margins.itl),
        "judge": PairedScoresProcess(max_drop=margins.judge, leading=shape),
    }


class Gates:
    """Our gate as it is by default and, to detect regressions, as it is when pods are known to be alike."""

    def __init__(self, deliveries: int, question: Question, metric: str = "", *, caches: bool = False) -> None:
        """At a margin only that metric is asked, because the others would hide what it does.

        With `caches` engines tell what came from theirs, and a gate that does not look at that stands next to ours.
        """
        self._stops = question is Question.REGRESSION
        tempered = engines(deliveries, Margins(), temper=True)
        if metric:
            tempered = {metric: tempered[metric]}
        colder = MAX_COLDER if caches else None
        self.deciders = [Gate("tidegate", deliveries, tempered, max_colder=colder)]
        if caches:
            self.deciders.append(Gate(UNAWARE, deliveries, engines(deliveries, Margins(), temper=True)))
        if question is Question.REGRESSION:
            alike = engines(deliveries, Margins(tolerance=0.0), temper=False)
            self.deciders.append(Gate("tidegate, pods alike", deliveries, alike, max_colder=colder))

    def feed(self, look: Look) -> None:
        """See one more look; before the canary has traffic, learn what the stable pods are like."""
        running = [gate for gate in self.deciders if not self._stops or gate.undecided.any()]
        if not running:
            return
        counted = Counted(look)
        for gate in running:
            if look.share:
                gate.feed_counted(counted, look.seconds)
            else:
                gate.learn(counted)
