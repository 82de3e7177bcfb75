"""Simulate canary deliveries and let tidegate's gate and its peers judge the same traffic; figures as JSON.

    .venv/bin/python -m benchmarks.canary_simulation.run > results.json
    .venv/bin/python -m benchmarks.canary_simulation.run --quick
    .venv/bin/python -m benchmarks.canary_simulation.run --cells '20/s: errors'

Each cell is deterministic by `--seed` and its own name, whatever else runs.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.canary_simulation import summary
from benchmarks.canary_simulation.deciders import Times
from benchmarks.canary_simulation.fixed_horizon import FixedHorizon
from benchmarks.canary_simulation.kayenta import Kayenta
from benchmarks.canary_simulation.load import LOOK_SECONDS
from benchmarks.canary_simulation.minutes import MinuteDecider, PerMinute
from benchmarks.canary_simulation.oracle import Oracle
from benchmarks.canary_simulation.ours import Gates
from benchmarks.canary_simulation.samples import Array
from benchmarks.canary_simulation.scenarios import MID, Cell, Question, cells
from benchmarks.canary_simulation.static_thresholds import (
    ArgoRollouts,
    Flagger,
    History,
    Limits,
    beside_stable,
    canary_alone,
    flagger_metrics,
)
from benchmarks.canary_simulation.workloads import HEALTHY, Workload

CHUNK = 250
"""Deliveries side by side: what still fits into the processor's cache."""


@dataclass(frozen=True)
class Wish:
    """What the command line asked for."""

    seed: int
    healthy: int
    regressed: int
    margin: int
    cells: str
    quick: bool

    def deliveries(self, question: Question) -> int:
        return {
            Question.HEALTHY: self.healthy,
            Question.REGRESSION: self.regressed,
            Question.MARGIN: self.margin,
        }[question]


def main() -> None:
    wish = read_wish()
    began = time.monotonic()
    limits = operator_limits(wish.seed)
    figures = []
    for cell in chosen(wish):
        started = time.monotonic()
        figures.append(run_cell(cell, wish, limits))
        figures[-1]["wall_seconds"] = round(time.monotonic() - started, 1)
        print(f"{cell.question}: {cell.name}: {figures[-1]['wall_seconds']:.0f} s", file=sys.stderr)
    report = {
        "seed": wish.seed,
        "look_seconds": LOOK_SECONDS,
        "machine": {"processor": processor(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("numpy", "scipy", "tidegate")},
        "wall_seconds": round(time.monotonic() - began, 1),
        "cells": figures,
    }
    print(json.dumps(report, indent=1))


def read_wish() -> Wish:
    parser = argparse.ArgumentParser(description="Simulate canary deliveries and compare judges.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=1000, help="deliveries of a cell with a healthy canary")
    parser.add_argument("--regressed", type=int, default=250, help="deliveries of a cell with a regression")
    parser.add_argument("--margin", type=int, default=1000, help="deliveries of a cell at the margin")
    parser.add_argument("--cells", default="", help="only cells that have this in `question: name`")
    parser.add_argument("--quick", action="store_true", help="a few short deliveries: does it run at all?")
    return Wish(**vars(parser.parse_args()))


def chosen(wish: Wish) -> Iterator[Cell]:
    for cell in cells():
        if wish.cells in f"{cell.question}: {cell.name}":
            yield replace(cell, traffic=replace(cell.traffic, looks=12)) if wish.quick else cell


def operator_limits(seed: int) -> Limits:
    """What an operator reads off the stable version's history, before any delivery."""
    traffic = replace(MID, looks=60, warm_up_looks=0)
    history = History("", 100)
    minutes = PerMinute([history], traffic.looks)
    for look in Workload(traffic, HEALTHY, 100, seed).looks():
        minutes.feed(look)
    return Limits.from_history(history.minutes)


def run_cell(cell: Cell, wish: Wish, limits: Limits) -> dict[str, object]:
    """All deciders on the same deliveries, a chunk at a time."""
    wanted = 8 if wish.quick else wish.deliveries(cell.question)
    oracle = Oracle(cell.regression, cell.traffic) if cell.question is Question.REGRESSION else None
    parts = []
    for number, begin in enumerate(range(0, wanted, CHUNK)):
        seed = int(np.random.SeedSequence([wish.seed, zlib.crc32(cell.name.encode()), number]).generate_state(1)[0])
        parts.append(run_chunk(cell, min(CHUNK, wanted - begin), seed, limits, oracle))
    figures: dict[str, object] = {"name": cell.name, "question": cell.question}
    if oracle:
        figures |= {"oracle_seconds": round(oracle.seconds, 1), "oracle_test": oracle.test}
    figures["deciders"] = {
        name: figures_of(cell, times, oracle.seconds if oracle else np.nan)
        for name, times in summary.joined(parts).items()
    }
    return figures


def run_chunk(
    cell: Cell, deliveries: int, seed: int, limits: Limits, oracle: Oracle | None
) -> dict[str, tuple[Array, Array]]:
    """First times of every decider by its name."""
    gates = Gates(deliveries, cell.question, cell.metric)
    looks = cell.traffic.looks
    peers = PerMinute(minute_deciders(deliveries, limits), looks)
    tests = FixedHorizon(deliveries, looks)
    readers = [peers.feed, tests.feed]
    if oracle:
        oracle.start(deliveries)
        readers.append(oracle.feed)
    for look in Workload(cell.traffic, cell.regression, deliveries, seed).looks():
        gates.feed(look)
        for feed in readers if look.share else ():
            feed(look)
    deciders: list[Times] = [*gates.deciders, *peers.deciders, *tests.deciders]
    return {one.name: (one.rollback_seconds, one.accept_seconds) for one in deciders}


def minute_deciders(deliveries: int, limits: Limits) -> list[MinuteDecider]:
    alone = canary_alone(limits)
    return [
        ArgoRollouts("Argo Rollouts, failureLimit 0", deliveries, alone, 0),
        ArgoRollouts("Argo Rollouts, failureLimit 3", deliveries, alone, 3),
        ArgoRollouts("Argo Rollouts beside stable, failureLimit 3", deliveries, beside_stable, 3),
        Flagger("Flagger, threshold 10", deliveries, flagger_metrics(limits), 10),
        Kayenta("Kayenta, judged every minute", deliveries, 1),
        Kayenta("Kayenta, judged every 5 minutes", deliveries, 5),
    ]


def figures_of(cell: Cell, times: tuple[Array, Array], oracle_seconds: float) -> summary.Figures:
    rollback, accept = times
    if cell.question is Question.HEALTHY:
        return summary.healthy(rollback, accept)
    if cell.question is Question.REGRESSION:
        return summary.regression(rollback, accept, cell.regression.onset_seconds, oracle_seconds)
    return summary.margin(rollback, accept)


def processor() -> str:
    """Its name, where the system tells."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
