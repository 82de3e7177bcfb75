"""A plan and the forecasts of its gates: as a table on a terminal, and as the comment under a merge request."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from math import exp

from gates.planning.forecast import LIKELY
from gates.traffic import Assumptions, GateForecast
from pipelines.model import GatePlan, Plan, PlanStep, UnresolvedPlan
from tidegate.core.text import table_cell
from tidegate.core.units import duration

COLUMNS = ("gate", "healthy: passes after", "regression", "caught after", "seen in time")


NOTHING = "-"


def forecast_cells(forecast: GateForecast) -> tuple[str, ...]:
    """One for each of `COLUMNS`."""
    return (
        forecast.gate,
        _after(forecast.canary_requests_to_pass, forecast.unit, forecast.seconds_to_pass) + _mark(forecast),
        "all wrong" if forecast.source is None else regression_text(forecast, forecast.regression_share),
        _after(forecast.canary_requests_to_fail, forecast.unit, forecast.seconds_to_fail),
        _seen(forecast),
    )


def _of_command(gate: GatePlan) -> tuple[str, ...]:
    """A command costs no request that is known here, and takes its time limit at most."""
    return (gate.gate, f"a command, {duration(gate.seconds or 0.0)} at most", *(NOTHING,) * (len(COLUMNS) - 2))


def slowest(forecasts: Sequence[GateForecast]) -> GateForecast:
    """Of several sources that count for one gate, the one that it waits for."""
    return max(forecasts, key=lambda each: each.canary_requests_to_pass or float("inf"))


def regression_text(forecast: GateForecast, share: float) -> str:
    """A regression as people say it: `20 % slower`, `0.5 pp more`, `0.05 lower`."""
    if forecast.scale == "percent":
        return f"{float(f'{share * 100:.2g}'):g} % slower"
    if forecast.scale == "cost":
        return f"{float(f'{share * 100:.2g}'):g} % dearer"
    if forecast.scale == "change":
        return f"{float(f'{share * 100:.2g}'):g} % worse"
    if forecast.scale == "bound":
        return "out of bounds"
    if forecast.scale == "times":
        return f"{share:.2g} x allowed"
    return f"{share * 100:.2g} pp more" if forecast.scale == "points" else f"{share:.2g} lower"


def forecast_notes(shown: Iterable[GateForecast], assumed: Assumptions) -> list[str]:
    """What a reader must know to read the cells, a line each."""
    timed = [forecast for forecast in shown if forecast.source is not None]
    lines = [
        f"Half of all versions are decided by then, 8 of 10 within {LIKELY:g} times as long. Expected of both arms:",
        f"{assumed.error_rate * 100:g} % of requests fail, p95 is {exp(1.645 * assumed.spread):.1f} times the median, "
        f"answers are {assumed.likeness:g} alike. Verdicts rest on what is seen, not on this.",
    ]
    if any(_tight(forecast) for forecast in timed):
        lines.append("(tight): more than 2 of 10 healthy versions would not pass in time, and end as inconclusive.")
    if any(
        forecast.source not in ("probe", "load") and forecast.seconds_to_pass is None and forecast.reachable
        for forecast in timed
    ):
        lines.append("Nobody says how many users there are (`traffic.requests_per_second`), so not how long it takes.")
    return lines


def _after(count: int | None, unit: str, seconds: float | None) -> str:
    if count is None:
        return "never"
    return f"{count:,} {unit}" + (f" in {duration(seconds)}" if seconds is not None else "")


def _seen(forecast: GateForecast) -> str:
    if forecast.smallest_regression_share is not None:
        return f"from {regression_text(forecast, forecast.smallest_regression_share)}"
    known = forecast.unit == "prompts" or forecast.seconds_to_pass is not None
    return "none" if known else NOTHING


def _tight(forecast: GateForecast) -> bool:
    ends, passes = forecast.within_seconds, forecast.seconds_to_pass
    return ends is not None and passes is not None and passes <= ends < passes * LIKELY


def _mark(forecast: GateForecast) -> str:
    if not forecast.reachable:
        return " (too late)"
    return " (tight)" if _tight(forecast) else ""


PLAN_COLUMNS = ("step", "about", *COLUMNS)


AnyPlan = Plan | UnresolvedPlan


def _versions(plan: AnyPlan) -> tuple[str, str]:
    """What is delivered, and what it is compared with."""
    if isinstance(plan, Plan):
        return _subject(plan), f"champion is version {plan.in_production}"
    return f"models:/{plan.model}@{plan.origin}", f"{plan.target} was not looked up (--offline)"


def plan_rows(plan: AnyPlan) -> Iterator[tuple[str, ...]]:
    """One for each gate of each step, at most as long as `PLAN_COLUMNS`; gates like those of another step once."""
    told: dict[tuple[GatePlan, ...], str] = {}
    for step in plan.steps:
        place = told.setdefault(step.gates, step.id) if step.gates else step.id
        yield from _rows(step) if place == step.id else [(step.id, _about(step), "as", place)]


def _subject(plan: Plan) -> str:
    return f"engine {plan.on_trial} of {plan.version.uri}" if plan.is_engine_change else plan.version.uri


def approvals(plan: AnyPlan) -> Iterator[str]:
    """Which steps wait for people."""
    for step in plan.steps:
        if step.approvals:
            yield f"{step.id} waits for an approval of {', '.join(step.approvals)}"


def whole_time(plan: AnyPlan) -> str:
    """How long all of it takes."""
    return f"about {duration(plan.expected_seconds)} when every gate answers as soon as it can"


def plan_notes(plan: AnyPlan) -> list[str]:
    """What a reader must know to read the rows."""
    shown = [forecast for step in plan.steps for gate in step.gates for forecast in gate.forecasts]
    return forecast_notes(shown, Assumptions()) if shown else []


def _about(step: PlanStep) -> str:
    return duration(step.expected_seconds) if step.expected_seconds else "?"


def _rows(step: PlanStep) -> Iterator[tuple[str, ...]]:
    first = (step.id, _about(step))
    for gate in step.gates:
        yield (*first, *(forecast_cells(slowest(gate.forecasts)) if gate.forecasts else _of_command(gate)))
        first = ("", "")
    if not step.gates:
        yield first


def plan_markdown(plan: AnyPlan, spec: str, more: Sequence[str] = ()) -> str:
    """The comment; `spec` is the file's name as it was given, `more` are lines that stand next to the approvals."""
    version, champion = _versions(plan)
    head = f"{version} → {', '.join(plan.regions)}"
    champion = f"{whole_time(plan).capitalize()}. The {champion}."
    parts = [
        [_marker_line(spec), f"### {table_cell(head)}"],
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
    return f"{_marker_line(spec)}\n### No plan for {table_cell(spec)}\n\n{quoted}\n"


def _marker_line(spec: str) -> str:
    """A line that nobody sees: by it a job finds the comment that it wrote before, and replaces it."""
    return f"<!-- tidegate plan {spec} -->"


def _table(plan: AnyPlan) -> Iterator[str]:
    yield f"| {' | '.join(PLAN_COLUMNS)} |"
    yield "|---" * len(PLAN_COLUMNS) + "|"
    for row in plan_rows(plan):
        filled = (*row, *[""] * (len(PLAN_COLUMNS) - len(row)))
        yield f"| {' | '.join(table_cell(cell) for cell in filled)} |"


def print_plan(plan: AnyPlan) -> None:
    """The plan as a table on stdout."""
    from rich.table import Table

    from tidegate.cli.views.console import PlainConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in PLAN_COLUMNS:
        table.add_column(column, no_wrap=True)
    for row in plan_rows(plan):
        table.add_row(*row)
    console = PlainConsole(file=sys.stdout, width=None if sys.stdout.isatty() else 150)
    version, champion = _versions(plan)
    head = f"{version} -> {', '.join(plan.regions)}; {champion}"
    console.print(head, soft_wrap=True)
    console.print(table)
    for line in approvals(plan):
        console.print(line, soft_wrap=True)
    console.print(whole_time(plan))
    for line in plan_notes(plan):
        console.print(line, soft_wrap=True, style="dim")


def print_forecasts(name: str, found: list[GateForecast], assumed: Assumptions) -> None:
    """A line for each gate and source, and what would mend those that come too late."""
    from rich.table import Table

    from tidegate.cli.views.console import PlainConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in (*COLUMNS[:1], "counted by", *COLUMNS[1:]):
        table.add_column(column, no_wrap=True)
    for forecast in found:
        gate, *rest = forecast_cells(forecast)
        table.add_row(gate, forecast.source, *rest)
    console = PlainConsole(file=sys.stdout, width=None if sys.stdout.isatty() else 150)
    console.print(name, soft_wrap=True)
    console.print(table)
    for forecast in found:
        if forecast.remedy:
            console.print(f"{forecast.gate} would be in time with one of:")
            for remedy in forecast.remedy:
                console.print(f"  {remedy}", soft_wrap=True)
    for line in forecast_notes(found, assumed):
        console.print(line, soft_wrap=True, style="dim")
