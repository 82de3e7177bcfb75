"""`tidegate plan`: what a delivery would do."""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.model import Plan, Step
from tidegate.cli.compose import make_plan_of, open_registry, read_delivery
from tidegate.cli.output import print_json


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, as_json: bool) -> int:
    """Print the plan."""
    spec = read_delivery(spec_path)
    plan = make_plan_of(spec, spec_path.parent, open_registry(state, tracking_uri))
    if as_json:
        steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
        print_json(plan.model_dump(mode="json") | {"steps": steps, "expected_seconds": plan.expected_seconds})
    else:
        print_plan(plan)
    return 0


def print_plan(plan: Plan) -> None:
    """The plan as a table on stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("step", "about", "gates: what each needs before it can answer"):
        table.add_column(column, no_wrap=column != "gates")
    for step in plan.steps:
        table.add_row(step.id, _seconds(step.expected_seconds), _needs(step))
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 110)
    head = f"{plan.version.uri} -> {', '.join(plan.regions)}; champion is version {plan.champion.version}"
    console.print(head, soft_wrap=True)
    console.print(table)
    console.print(f"about {_seconds(plan.expected_seconds)} when every gate answers as soon as it can")


def _needs(step: Step) -> str:
    return ", ".join(
        f"{gate.gate} {gate.needs}" + (f" ({_seconds(gate.seconds)})" if gate.seconds is not None else "")
        for gate in step.gates
    )


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
