"""A plan as rows of a table and lines below it: for `tidegate plan` on a terminal and as a comment."""

from __future__ import annotations

from collections.abc import Iterator

from gates.planning.expected import Assumptions
from pipelines.model import GatePlan, Plan, Step
from pipelines.wording import duration
from tidegate.cli.forecast_table import COLUMNS, cells, notes, slowest

PLAN_COLUMNS = ("step", "about", *COLUMNS)


def plan_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """One for each gate of each step, at most as long as `PLAN_COLUMNS`; gates like those of another step once."""
    told: dict[tuple[GatePlan, ...], str] = {}
    for step in plan.steps:
        place = told.setdefault(step.gates, step.id) if step.gates else step.id
        yield from _rows(step) if place == step.id else [(step.id, _about(step), "as", place)]


def approvals(plan: Plan) -> Iterator[str]:
    """Which steps wait for people."""
    for step in plan.steps:
        if step.approvals:
            yield f"{step.id} waits for an approval of {', '.join(step.approvals)}"


def whole_time(plan: Plan) -> str:
    """How long all of it takes."""
    return f"about {duration(plan.expected_seconds)} when every gate answers as soon as it can"


def plan_notes(plan: Plan) -> list[str]:
    """What a reader must know to read the rows."""
    shown = [forecast for step in plan.steps for gate in step.gates for forecast in gate.forecasts]
    return notes(shown, Assumptions()) if shown else []


def _about(step: Step) -> str:
    return duration(step.expected_seconds) if step.expected_seconds else "?"


def _rows(step: Step) -> Iterator[tuple[str, ...]]:
    first = (step.id, _about(step))
    for gate in step.gates:
        yield (*first, *cells(slowest(gate.forecasts)))
        first = ("", "")
    if not step.gates:
        yield first
