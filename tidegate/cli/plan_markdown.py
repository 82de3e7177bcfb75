"""A plan as the comment under a merge request: what would happen to users once it is merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.model import Plan
from tidegate.cli.plan_rows import PLAN_COLUMNS, approvals, plan_notes, plan_rows, whole_time
from tidegate.core.markdown import table_cell


def plan_markdown(plan: Plan, spec: str, more: Sequence[str] = ()) -> str:
    """The comment; `spec` is the file's name as it was given, `more` are lines that stand beside the approvals."""
    head = f"{plan.version.uri} → {', '.join(plan.regions)}"
    champion = f"{whole_time(plan).capitalize()}. The champion is version {plan.champion.version}."
    parts = [
        [_mark(spec), f"### {table_cell(head)}"],
        [table_cell(champion)],
        [f"- {table_cell(line)}" for line in (*approvals(plan), *more)],
        [f"<details><summary>{len(plan.steps)} steps</summary>"],
        list(_table(plan)),
        [table_cell(line) for line in plan_notes(plan)],
        ["</details>"],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def refusal_markdown(spec: str, reason: str) -> str:
    """The comment when there is no plan: what would be refused after the merge is told before it."""
    # Indented, since problems of a spec are many lines that quote what somebody wrote.
    quoted = "\n".join(f"    {line}" for line in reason.splitlines())
    return f"{_mark(spec)}\n### No plan for {table_cell(spec)}\n\n{quoted}\n"


def _mark(spec: str) -> str:
    """A line that nobody sees: by it a job finds the comment that it wrote before, and replaces it."""
    return f"<!-- tidegate plan {spec} -->"


def _table(plan: Plan) -> Iterator[str]:
    yield f"| {' | '.join(PLAN_COLUMNS)} |"
    yield "|---" * len(PLAN_COLUMNS) + "|"
    for row in plan_rows(plan):
        filled = (*row, *[""] * (len(PLAN_COLUMNS) - len(row)))
        yield f"| {' | '.join(table_cell(cell) for cell in filled)} |"
