"""tidegate's gate beside its peers: the same engine that judges one delivery, over thousands side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.canary_simulation.deciders import Times
from benchmarks.canary_simulation.load import LOOK_SECONDS
from benchmarks.canary_simulation.samples import Array, Grid, Integers, Look
from benchmarks.canary_simulation.scenarios import Question
from gates.evalues.failing import Failing
from gates.evalues.paired import Lower
from gates.evalues.slower import Slower

ALPHA, BETA = 0.01, 0.05
"""Chance of rolling back a good version, and of accepting one at a margin, over the whole delivery."""
TTFT_GRID, ITL_GRID = Grid(low=0.015, ratio=1.05, bins=150), Grid(low=0.006, ratio=1.05, bins=82)
"""The engine's own width of bins; only where something is seen, to save time."""


@dataclass(frozen=True)
class Margins:
    """What the operator still accepts, and below which pods may differ."""

    ttft: float = 0.2
    itl: float = 0.2
    errors: float = 0.01
    judge: float = 0.1
    tolerance: float = 0.02


@dataclass(frozen=True)
class Counted:
    """One look as the engine reads it: counts of the canary and of each stable pod, by metric."""

    canary: Mapping[str, Array]
    stable: Mapping[str, Array]
    drop: Array
    """Of the judge's score, within pairs."""

    @classmethod
    def of(cls, look: Look) -> Counted:
        stable, canary = look.stable, look.canary
        return cls(
            canary={
                "errors": _kinds(canary.requests, canary.errors).sum(axis=1),
                "ttft": canary.ttft.counts(TTFT_GRID),
                "itl": canary.itl.counts(ITL_GRID),
            },
            stable={
                "errors": _kinds(stable.requests, stable.errors),
                "ttft": stable.ttft.pod_counts(TTFT_GRID),
                "itl": stable.itl.pod_counts(ITL_GRID),
            },
            drop=look.stable_scores - look.canary_scores,
        )


def _kinds(requests: Integers, errors: Integers) -> Array:
    return np.stack([requests - errors, errors], axis=-1).astype(np.float64)


Engine = Failing | Slower | Lower


class Gate(Times):
    """One budget over its metrics: the mean of their evidence rolls back, each of them must accept."""

    def __init__(self, name: str, deliveries: int, engines: Mapping[str, Engine]) -> None:
        super().__init__(name, deliveries)
        self._engines = engines

    def learn(self, counted: Counted) -> None:
        """A look at the stable arm before there was a canary."""
        for metric, engine in self._engines.items():
            if not isinstance(engine, Lower):
                engine.learn(counted.stable[metric], LOOK_SECONDS)

    def feed_counted(self, counted: Counted, seconds: float) -> None:
        """See one more look."""
        for metric, engine in self._engines.items():
            if isinstance(engine, Lower):
                engine.feed(counted.drop, LOOK_SECONDS)
            else:
                engine.feed(counted.canary[metric], counted.stable[metric], LOOK_SECONDS)
        worse = np.stack([engine.log_worse for engine in self._engines.values()])
        self.roll_back(np.logaddexp.reduce(worse, axis=0) - np.log(len(worse)) >= -np.log(ALPHA), seconds)
        fine = np.stack([engine.log_fine for engine in self._engines.values()])
        self.accept((fine >= -np.log(BETA)).all(axis=0), seconds)


def engines(deliveries: int, margins: Margins, *, temper: bool) -> dict[str, Engine]:
    """The four metrics, at the margins."""
    shape = (deliveries,)

    def slower(grid: Grid, margin: float) -> Slower:
        edges, tolerance = np.exp(grid.log_edges), margins.tolerance
        return Slower(edges, quantile=0.95, max_increase=margin, tolerance=tolerance, temper=temper, leading=shape)

    return {
        "errors": Failing(max_increase=margins.errors, temper=temper, leading=shape),
        "ttft": slower(TTFT_GRID, margins.ttft),
        "itl": slower(ITL_GRID, margins.itl),
        "judge": Lower(max_drop=margins.judge, leading=shape),
    }


class Gates:
    """Our gate as it is by default and, to detect regressions, as it is when pods are known to be alike."""

    def __init__(self, deliveries: int, question: Question, metric: str = "") -> None:
        """At a margin only that metric is asked, because the others would hide what it does."""
        self._stops = question is Question.REGRESSION
        tempered = engines(deliveries, Margins(), temper=True)
        if metric:
            tempered = {metric: tempered[metric]}
        self.deciders = [Gate("tidegate", deliveries, tempered)]
        if question is Question.REGRESSION:
            alike = engines(deliveries, Margins(tolerance=0.0), temper=False)
            self.deciders.append(Gate("tidegate, pods alike", deliveries, alike))

    def feed(self, look: Look) -> None:
        """See one more look; before the canary has traffic, learn what the stable pods are like."""
        running = [gate for gate in self.deciders if not self._stops or gate.undecided.any()]
        if not running:
            return
        counted = Counted.of(look)
        for gate in running:
            if look.share:
                gate.feed_counted(counted, look.seconds)
            else:
                gate.learn(counted)
