"""The figures file as plots and tables read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.canary_simulation.scenarios import Question
from tidegate.core.model import Value

OURS, ALIKE = "tidegate", "tidegate, pods alike"
Number = float | int | str | None


class CellFigures(Value):
    """One cell."""

    name: str
    question: Question
    deliveries: int
    oracle_seconds: float | None = None
    oracle_test: str = ""
    deciders: Mapping[str, Mapping[str, Number]]

    def number(self, decider: str, what: str) -> float | None:
        """One figure of one decider; None when there is none, or never."""
        found = self.deciders[decider].get(what)
        return float(found) if isinstance(found, int | float) else None


class StudyFigures(Value):
    """All that `figures` writes."""

    seeds: tuple[int, ...]
    look_seconds: float
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    wall_seconds: float
    cells: tuple[CellFigures, ...]

    def asking(self, question: Question) -> list[CellFigures]:
        """Cells with that question, in the order of the scenarios."""
        return [cell for cell in self.cells if cell.question is question]


def read_figures(file: Path) -> StudyFigures:
    """What a file of figures says."""
    return StudyFigures.model_validate(json.loads(file.read_text()))
