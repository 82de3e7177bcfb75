"""`tidegate plan`: what a delivery would do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gates.planning.expected import Assumptions
from pipelines.engine_count import EngineCount, engine_counts
from pipelines.model import GatePlan, Plan, Step
from pipelines.wording import duration
from tidegate.cli.compose import make_plan_of, open_registry, read_delivery
from tidegate.cli.forecast_table import COLUMNS, cells, notes, slowest
from tidegate.cli.output import print_json


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Print the plan."""
    spec = read_delivery(spec_path)
    plan = make_plan_of(spec, spec_path.parent, open_registry(state, tracking_uri))
    if as_json:
        steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
        engines = [each.model_dump(mode="json") for each in engine_counts(spec)]
        told = {"steps": steps, "expected_seconds": plan.expected_seconds, "engines": engines}
        print_json(plan.model_dump(mode="json") | told)
    else:
        print_plan(plan)
        for each in engine_counts(spec):
            print(_held(each))
    return 0


def _held(count: EngineCount) -> str:
    cost = f", {count.per_hour:,.2f} {count.currency} an hour" if count.per_hour is not None else ""
    warm = f"; up to {count.warm} more are kept warm after promotions" if count.warm else ""
    return (
        f"{count.region}: {count.serving} engines serve, {count.first} more come without users, "
        f"{count.most} at most{cost}{warm}"
    )


def print_plan(plan: Plan) -> None:
    """The plan as a table on stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("step", "about", *COLUMNS):
        table.add_column(column, no_wrap=True)
    told: dict[tuple[GatePlan, ...], str] = {}
    for step in plan.steps:
        place = told.setdefault(step.gates, step.id) if step.gates else step.id
        for row in _rows(step) if place == step.id else [(step.id, _about(step), "as", place)]:
            table.add_row(*row)
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 150)
    head = f"{plan.version.uri} -> {', '.join(plan.regions)}; champion is version {plan.champion.version}"
    console.print(head, soft_wrap=True)
    console.print(table)
    for step in plan.steps:
        if step.approvals:
            console.print(f"{step.id} waits for an approval of {', '.join(step.approvals)}", soft_wrap=True)
    console.print(f"about {duration(plan.expected_seconds)} when every gate answers as soon as it can")
    shown = [forecast for step in plan.steps for gate in step.gates for forecast in gate.forecasts]
    for line in notes(shown, Assumptions()) if shown else ():
        console.print(line, soft_wrap=True, style="dim")


def _about(step: Step) -> str:
    return duration(step.expected_seconds) if step.expected_seconds else "?"


def _rows(step: Step) -> Iterator[tuple[str, ...]]:
    first = (step.id, _about(step))
    for gate in step.gates:
        yield (*first, *cells(slowest(gate.forecasts)))
        first = ("", "")
    if not step.gates:
        yield first
