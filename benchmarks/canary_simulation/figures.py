"""From the chunks of one or several runs to the figures of every cell, as JSON.

.venv/bin/python -m benchmarks.canary_simulation.figures results.jsonl > figures.json
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.canary_simulation import summary
from benchmarks.canary_simulation.acceptance_oracle import ALL, Acceptance
from benchmarks.canary_simulation.chunks import Chunk, kept
from benchmarks.canary_simulation.load import LOOK_SECONDS
from benchmarks.canary_simulation.oracle import Power
from benchmarks.canary_simulation.samples import Array
from benchmarks.canary_simulation.scenarios import Cell, Question, cells


def main() -> None:
    chunks = list(kept(map(Path, sys.argv[1:])))
    print(json.dumps(report(chunks), indent=1))


def report(chunks: Sequence[Chunk]) -> dict[str, object]:
    """Every cell that has a chunk, in the order of the scenarios."""
    found = [
        (cell, mine)
        for cell in cells()
        if (mine := [one for one in chunks if (one.place.question, one.place.name) == (cell.question, cell.name)])
    ]
    return {
        "seeds": sorted({chunk.place.seed for chunk in chunks}),
        "look_seconds": LOOK_SECONDS,
        "machine": {"processor": processor(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("numpy", "scipy", "tidegate")},
        "wall_seconds": round(sum(chunk.wall_seconds for chunk in chunks)),
        "cells": [of_cell(cell, mine) for cell, mine in found],
    }


def of_cell(cell: Cell, chunks: Sequence[Chunk]) -> dict[str, object]:
    """The figures of all deciders, and the oracle's where something regressed."""
    figures: dict[str, object] = {
        "name": cell.name,
        "question": cell.question,
        "deliveries": sum(chunk.place.deliveries for chunk in chunks),
    }
    oracle_seconds = np.nan
    if cell.question is Question.REGRESSION:
        test, oracle_seconds = oracle_of(cell, [chunk.power for chunk in chunks])
        figures |= {"oracle_seconds": round(oracle_seconds, 1), "oracle_test": test}
    # It does not know by how much an empty cache is slower.
    if cell.question is Question.HEALTHY and not cell.traffic.cached:
        oracle_seconds = reduce(Acceptance.plus, [chunk.acceptance[ALL] for chunk in chunks]).seconds
        figures |= {"oracle_seconds": oracle_seconds if np.isfinite(oracle_seconds) else None}
    figures["deciders"] = {name: of_decider(cell, *joined(chunks, name), oracle_seconds) for name in chunks[0].deciders}
    return figures


def oracle_of(cell: Cell, powers: Sequence[Mapping[str, Power]]) -> tuple[str, float]:
    """The earliest test and its time since the onset."""
    onset = cell.regression.onset_seconds
    times = {name: reduce(Power.plus, [each[name] for each in powers]).seconds(onset) for name in powers[0]}
    best = min(times, key=lambda name: times[name])
    return best, times[best]


def joined(chunks: Sequence[Chunk], name: str) -> tuple[Array, Array]:
    """First rollbacks and first acceptances of one decider, infinite for never."""
    decided = [chunk.deciders[name] for chunk in chunks]
    rollback = [seconds for one in decided for seconds in one.rollback_seconds]
    accept = [seconds for one in decided for seconds in one.accept_seconds]
    return _numbers(rollback), _numbers(accept)


def _numbers(seconds: Sequence[float | None]) -> Array:
    return np.asarray([np.inf if each is None else each for each in seconds])


def of_decider(cell: Cell, rollback: Array, accept: Array, oracle_seconds: float) -> summary.Figures:
    """What the cell's question asks of one decider."""
    if cell.question is Question.HEALTHY:
        return summary.healthy(rollback, accept, oracle_seconds)
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
