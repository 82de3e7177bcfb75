"""A plan and the forecasts of its gates: as a table on a terminal, and as the comment under a merge request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import exp

from gates.planning.forecast import LIKELY
from gates.traffic import Assumptions, GateForecast
from pipelines.model import GatePlan, Plan, UnresolvedPlan
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


def slowest(forecasts: Sequence[GateForecast]) -> GateForecast:
    """Of several sources that count for one gate, the one that it waits for."""
    return max(forecasts, key=lambda each: each.canary_requests_to_pass or float("inf"))


_OF_PERCENT = {"percent": "slower", "cost": "dearer", "change": "worse"}


def regression_text(forecast: GateForecast, share: float) -> str:
    """A regression as people say it: `20 % slower`, `0.5 pp more`, `0.05 lower`."""
    if forecast.scale in _OF_PERCENT:
        return f"{float(f'{share * 100:.2g}'):g} % {_OF_PERCENT[forecast.scale]}"
    other = {"bound": "out of bounds", "times": f"{share:.2g} x allowed", "points": f"{share * 100:.2g} pp more"}
    return other.get(forecast.scale, f"{share:.2g} lower")


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
    if isinstance(plan, UnresolvedPlan):
        return f"models:/{plan.model}@{plan.origin}", f"{plan.target} was not looked up (--offline)"
    engine = f"engine {plan.on_trial} of " if plan.is_engine_change else ""
    return f"{engine}{plan.version.uri}", f"champion is version {plan.in_production}"


def plan_rows(plan: AnyPlan) -> Iterator[tuple[str, ...]]:
    """One for each gate of each step, at most as long as `PLAN_COLUMNS`; gates like those of another step once."""
    told: dict[tuple[GatePlan, ...], str] = {}
    for step in plan.steps:
        place = told.setdefault(step.gates, step.id) if step.gates else step.id
        first = (step.id, duration(step.expected_seconds) if step.expected_seconds else "?")
        if not step.gates or place != step.id:
            yield (*first, *(() if place == step.id else ("as", place)))
            continue
        for gate in step.gates:
            # A command costs no request that is known here, and takes its time limit at most.
            command = (
                gate.gate,
                f"a command, {duration(gate.seconds or 0.0)} at most",
                *(NOTHING,) * (len(COLUMNS) - 2),
            )
            yield (*first, *(forecast_cells(slowest(gate.forecasts)) if gate.forecasts else command))
            first = ("", "")


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


def plan_markdown(plan: AnyPlan, spec: str, more: Sequence[str] = ()) -> str:
    """The comment; `spec` is the file's name as it was given, `more` are lines that stand next to the approvals."""
    version, champion = _versions(plan)
    head = f"{version} → {', '.join(plan.regions)}"
    champion = f"{whole_time(plan).capitalize()}. The {champion}."
    table = [f"| {' | '.join(PLAN_COLUMNS)} |", "|---" * len(PLAN_COLUMNS) + "|"]
    for row in plan_rows(plan):
        table.append(f"| {' | '.join(map(table_cell, (*row, *[''] * (len(PLAN_COLUMNS) - len(row)))))} |")
    parts = [
        [_marker_line(spec), f"### {table_cell(head)}"],
        [table_cell(champion)],
        [f"- {table_cell(line)}" for line in (*approvals(plan), *more)],
        [f"<details><summary>{len(plan.steps)} steps</summary>"],
        table,
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


def _print_table(head: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Callable[..., None]:
    """Print it on stdout; returns what prints lines below it."""
    from rich.table import Table

    from tidegate.cli.views.console import PlainConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = PlainConsole(file=sys.stdout, width=None if sys.stdout.isatty() else 150)
    console.print(head, soft_wrap=True)
    console.print(table)
    return partial(console.print, soft_wrap=True)


def print_plan(plan: AnyPlan) -> None:
    """The plan as a table on stdout."""
    version, champion = _versions(plan)
    say = _print_table(f"{version} -> {', '.join(plan.regions)}; {champion}", PLAN_COLUMNS, plan_rows(plan))
    for line in (*approvals(plan), whole_time(plan)):
        say(line)
    for line in plan_notes(plan):
        say(line, style="dim")


def print_forecasts(name: str, found: list[GateForecast], assumed: Assumptions) -> None:
    """A line for each gate and source, and what would mend those that come too late."""
    rows = ((each.gate, each.source or "", *forecast_cells(each)[1:]) for each in found)
    say = _print_table(name, (COLUMNS[0], "counted by", *COLUMNS[1:]), rows)
    for forecast in found:
        if forecast.remedy:
            say(f"{forecast.gate} would be in time with one of:")
            for remedy in forecast.remedy:
                say(f"  {remedy}")
    for line in forecast_notes(found, assumed):
        say(line, style="dim")
