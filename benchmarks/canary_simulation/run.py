"""Simulate canary deliveries and let tidegate's gate and its peers judge the same traffic.

    .venv/bin/python -m benchmarks.canary_simulation.run results.jsonl
    .venv/bin/python -m benchmarks.canary_simulation.run quick.jsonl --quick
    .venv/bin/python -m benchmarks.canary_simulation.run errors.jsonl --cells '20/s: errors'
    .venv/bin/python -m benchmarks.canary_simulation.figures results.jsonl errors.jsonl > figures.json

A line of the file is a chunk of one cell's deliveries, deterministic by `--seed`, its cell's name and its number.
A chunk that the file already has is not run again: what was stopped goes on, and more can be added later.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.canary_simulation.chunks import LONGEST, Place, kept, simulate
from benchmarks.canary_simulation.scenarios import Cell, Question, cells

QUICK_DELIVERIES, QUICK_LOOKS = 8, 12
TURNS = (Question.HEALTHY, Question.MARGIN, Question.REGRESSION)
"""What is asked first; the first chunks of all cells come before any second one."""


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    file: Path
    seed: int
    healthy: int
    regressed: int
    margin: int
    cells: str
    quick: bool

    def deliveries(self, question: Question) -> int:
        if self.quick:
            return QUICK_DELIVERIES
        return {
            Question.HEALTHY: self.healthy,
            Question.REGRESSION: self.regressed,
            Question.MARGIN: self.margin,
        }[question]


def main() -> None:
    options = read_options()
    done = {chunk.place for chunk in kept([options.file])}
    with options.file.open("a") as file:
        for cell, place in places(options):
            if place in done:
                continue
            chunk = simulate(cell, place)
            file.write(chunk.model_dump_json() + "\n")
            file.flush()
            print(f"{place.question}: {place.name} #{place.number}: {chunk.wall_seconds:.0f} s", file=sys.stderr)


def read_options() -> Options:
    parser = argparse.ArgumentParser(description="Simulate canary deliveries and compare judges.")
    parser.add_argument("file", type=Path, help="gets a line of JSON for each chunk")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=1000, help="deliveries of a cell with a healthy canary")
    parser.add_argument("--regressed", type=int, default=200, help="deliveries of a cell with a regression")
    parser.add_argument("--margin", type=int, default=1000, help="deliveries of a cell at the margin")
    parser.add_argument("--cells", default="", help="only cells that have this in `question: name`")
    parser.add_argument("--quick", action="store_true", help="a few short deliveries: does it run at all?")
    return Options(**vars(parser.parse_args()))


def places(options: Options) -> Iterator[tuple[Cell, Place]]:
    """What is to be done, in the order in which a run that is stopped early is worth most."""
    found = []
    for cell in cells():
        if options.cells not in f"{cell.question}: {cell.name}":
            continue
        chosen = replace(cell, traffic=cell.traffic.lasting(QUICK_LOOKS)) if options.quick else cell
        wanted, longest = min(options.deliveries(cell.question), cell.most), LONGEST[cell.question]
        for number, begin in enumerate(range(0, wanted, longest)):
            size = min(longest, wanted - begin)
            found.append(
                (
                    chosen,
                    Place(seed=options.seed, question=cell.question, name=cell.name, number=number, deliveries=size),
                )
            )
    yield from sorted(found, key=lambda one: (one[1].number, TURNS.index(one[1].question)))


if __name__ == "__main__":
    main()
