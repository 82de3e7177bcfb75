"""A chunk: some deliveries of one cell side by side, judged by everyone, and kept as one line of JSON."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.canary_simulation.acceptance_oracle import Acceptance, AcceptanceOracle
from benchmarks.canary_simulation.deciders import Times
from benchmarks.canary_simulation.fixed_horizon import FixedHorizon
from benchmarks.canary_simulation.kayenta import Kayenta
from benchmarks.canary_simulation.minutes import MinuteDecider, PerMinute
from benchmarks.canary_simulation.oracle import Oracle, Power
from benchmarks.canary_simulation.ours import Gates
from benchmarks.canary_simulation.samples import Array, Look
from benchmarks.canary_simulation.scenarios import MID, Cell, Question
from benchmarks.canary_simulation.static_thresholds import (
    ArgoRollouts,
    Flagger,
    History,
    Limits,
    against_stable,
    canary_alone,
    flagger_metrics,
)
from benchmarks.canary_simulation.workloads import HEALTHY, Workload
from tidegate.core.model import Value

LONGEST = {Question.HEALTHY: 250, Question.MARGIN: 250, Question.REGRESSION: 100}
"""Deliveries side by side: what still fits into the processor's cache, and is soon worth something."""


class Place(Value):
    """Which chunk of which cell; the same place always gives the same deliveries."""

    seed: int
    question: Question
    name: str
    number: int
    deliveries: int

    @property
    def random_seed(self) -> int:
        words = [self.seed, zlib.crc32(self.name.encode()), self.number]
        return int(np.random.SeedSequence(words).generate_state(1)[0])


class Decided(Value):
    """When a decider first rolled back and first accepted, for each delivery; None for never."""

    rollback_seconds: tuple[float | None, ...]
    accept_seconds: tuple[float | None, ...]

    @classmethod
    def of(cls, times: Times) -> Decided:
        return cls(rollback_seconds=_told(times.rollback_seconds), accept_seconds=_told(times.accept_seconds))


class Chunk(Value):
    """What came of it."""

    place: Place
    wall_seconds: float
    deciders: Mapping[str, Decided]
    power: Mapping[str, Power] = {}
    """The oracle's, by its test."""
    acceptance: Mapping[str, Acceptance] = {}
    """The other oracle's, by metric, where the versions are good."""


def _told(seconds: Array) -> tuple[float | None, ...]:
    return tuple(each if np.isfinite(each) else None for each in seconds.tolist())


@cache
def operator_limits(seed: int, cached: float = 0.0) -> Limits:
    """What an operator reads off the stable version's history, before any delivery; `cached` is as in `Traffic`."""
    traffic = replace(MID, looks=60, warm_up_looks=0, cached=cached)
    history = History("", 100)
    minutes = PerMinute([history], traffic.looks)
    for look in Workload(traffic, HEALTHY, 100, seed).looks():
        minutes.feed(look)
    return Limits.from_history(history.minutes)


def simulate(cell: Cell, place: Place) -> Chunk:
    """All deciders on the same deliveries; at a margin only our gate, because no other one says what it accepts."""
    began, limits = time.monotonic(), operator_limits(place.seed, cell.traffic.cached)
    deliveries = place.deliveries
    gates = Gates(deliveries, cell.question, cell.metric, caches=cell.traffic.cached > 0)
    peers = Peers(0 if cell.question is Question.MARGIN else deliveries, cell.traffic.looks, limits)
    oracle = Oracle(cell.regression, cell.traffic, deliveries) if cell.question is Question.REGRESSION else None
    accepting = (
        AcceptanceOracle(cell.traffic, deliveries)
        if cell.question is Question.HEALTHY and not cell.traffic.cached
        else None
    )
    readers = [peers.feed, *(each.feed for each in (oracle, accepting) if each)]
    for look in Workload(cell.traffic, cell.regression, deliveries, place.random_seed).looks():
        gates.feed(look)
        for feed in readers if look.share else ():
            feed(look)
    return Chunk(
        place=place,
        wall_seconds=round(time.monotonic() - began, 1),
        deciders={one.name: Decided.of(one) for one in [*gates.deciders, *peers.deciders]},
        power=oracle.power() if oracle else {},
        acceptance=accepting.acceptance() if accepting else {},
    )


class Peers:
    """Everyone but us."""

    def __init__(self, deliveries: int, looks: int, limits: Limits) -> None:
        """None of them for no deliveries."""
        self._minutes = PerMinute(minute_deciders(deliveries, limits) if deliveries else (), looks)
        self._tests = FixedHorizon(deliveries, looks)
        self._asked = deliveries > 0

    @property
    def deciders(self) -> list[Times]:
        return [*self._minutes.deciders, *self._tests.deciders] if self._asked else []

    def feed(self, look: Look) -> None:
        """See one more look."""
        if self._asked:
            self._minutes.feed(look)
            self._tests.feed(look)


def minute_deciders(deliveries: int, limits: Limits) -> list[MinuteDecider]:
    """Those that read one number a minute."""
    alone = canary_alone(limits)
    return [
        ArgoRollouts("Argo Rollouts, failureLimit 0", deliveries, alone, 0),
        ArgoRollouts("Argo Rollouts, failureLimit 3", deliveries, alone, 3),
        ArgoRollouts("Argo Rollouts against stable, failureLimit 3", deliveries, against_stable, 3),
        Flagger("Flagger, threshold 10", deliveries, flagger_metrics(limits), 10),
        Kayenta("Kayenta, judged every minute", deliveries, 1),
        Kayenta("Kayenta, judged every 5 minutes", deliveries, 5),
    ]


def kept(files: Iterable[Path]) -> Iterator[Chunk]:
    """The chunks of files of earlier runs, each place once; a last line that a stop cut short is left out."""
    seen = set()
    for file in files:
        for line in file.read_text().splitlines(keepends=True) if file.exists() else ():
            chunk = Chunk.model_validate_json(line) if line.endswith("\n") else None
            if chunk and chunk.place not in seen:
                seen.add(chunk.place)
                yield chunk
