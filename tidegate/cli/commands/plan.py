"""`tidegate plan`: what a delivery would do."""

from __future__ import annotations

import sys
from pathlib import Path

from pipelines.engine_count import EngineCount, engine_counts
from pipelines.model import Plan
from pipelines.spec import Delivery
from tidegate.cli.compose import make_plan_of, open_registry, read_delivery
from tidegate.cli.output import print_json
from tidegate.cli.plan_markdown import plan_markdown, refusal_markdown
from tidegate.cli.plan_rows import PLAN_COLUMNS, approvals, plan_notes, plan_rows, whole_time
from tidegate.core.errors import TidegateError


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, output: str) -> int:
    """Print the plan as `text`, `json` or `markdown`.

    Raises:
        TidegateError: there is no plan; as Markdown that is printed too, since a comment must say so.
    """
    try:
        spec = read_delivery(spec_path)
        plan = make_plan_of(spec, spec_path.parent, open_registry(state, tracking_uri))
    except TidegateError as error:
        if output == "markdown":
            print(refusal_markdown(str(spec_path), str(error)), end="")
        raise
    if output == "json":
        _print_json(plan, spec)
        return 0
    held = [_held(each) for each in engine_counts(spec)]
    if output == "markdown":
        print(plan_markdown(plan, str(spec_path), held), end="")
        return 0
    print_plan(plan)
    for line in held:
        print(line)
    return 0


def _print_json(plan: Plan, spec: Delivery) -> None:
    steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
    engines = [each.model_dump(mode="json") for each in engine_counts(spec)]
    told = {"steps": steps, "expected_seconds": plan.expected_seconds, "engines": engines}
    print_json(plan.model_dump(mode="json") | told)


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
    for column in PLAN_COLUMNS:
        table.add_column(column, no_wrap=True)
    for row in plan_rows(plan):
        table.add_row(*row)
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 150)
    head = f"{plan.version.uri} -> {', '.join(plan.regions)}; champion is version {plan.champion.version}"
    console.print(head, soft_wrap=True)
    console.print(table)
    for line in approvals(plan):
        console.print(line, soft_wrap=True)
    console.print(whole_time(plan))
    for line in plan_notes(plan):
        console.print(line, soft_wrap=True, style="dim")
