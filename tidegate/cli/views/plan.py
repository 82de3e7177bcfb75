"""A plan and the forecasts of its gates: as lines for a terminal, and as the comment under a merge request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from math import exp

from gates.planning.forecast import LIKELY
from gates.traffic import Assumptions, Change, GateForecast
from pipelines.model import GatePlan, Plan, UnresolvedPlan
from tidegate.core.text import aligned, table_cell
from tidegate.core.units import duration, format_duration

COLUMNS = ("gate", "healthy: passes after", "regression", "caught after", "seen in time")
PLAN_COLUMNS = ("step", "about", *COLUMNS)
NOTHING = "-"
AnyPlan = Plan | UnresolvedPlan
_OF_PERCENT = {"percent": "slower", "cost": "dearer", "change": "worse"}


def forecast_cells(forecast: GateForecast) -> tuple[str, ...]:
    """One for each of `COLUMNS`."""
    mark = " (too late)" if not forecast.reachable else " (tight)" if _tight(forecast) else ""
    seen, asked = forecast.smallest_regression_share, forecast.regression_share
    passes = _after(forecast.canary_requests_to_pass, forecast.unit, forecast.seconds_to_pass) + mark
    if asked is None:
        return (forecast.gate, passes, NOTHING, NOTHING, NOTHING)
    known = forecast.unit == "prompts" or forecast.seconds_to_pass is not None
    return (
        forecast.gate,
        passes,
        "all wrong" if forecast.source is None else _regression(forecast, asked),
        _after(forecast.canary_requests_to_fail, forecast.unit, forecast.seconds_to_fail),
        f"from {_regression(forecast, seen)}" if seen is not None else "none" if known else NOTHING,
    )


def _regression(forecast: GateForecast, share: float) -> str:
    """A regression as people say it: `20 % slower`, `0.5 pp more`, `0.05 lower`."""
    if forecast.scale in _OF_PERCENT:
        return f"{float(f'{share * 100:.2g}'):g} % {_OF_PERCENT[forecast.scale]}"
    return f"{share * 100:.2g} pp more" if forecast.scale == "points" else f"{share:.2g} lower"


def _after(count: int | None, unit: str, seconds: float | None) -> str:
    if count is None:
        return "never"
    return f"{count:,} {unit}" + (f" in {duration(seconds)}" if seconds is not None else "")


def _tight(forecast: GateForecast) -> bool:
    ends, passes = forecast.within_seconds, forecast.seconds_to_pass
    return ends is not None and passes is not None and passes <= ends < passes * LIKELY


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
    users = [each for each in timed if each.source not in ("probe", "load")]
    if any(each.seconds_to_pass is None and each.reachable for each in users):
        lines.append("Nobody says how many users there are (`traffic.requests_per_second`), so not how long it takes.")
    return lines


def plan_rows(plan: AnyPlan) -> Iterator[tuple[str, ...]]:
    """One for each gate of each step, at most as long as `PLAN_COLUMNS`; gates like those of another step once."""
    told: dict[tuple[GatePlan, ...], str] = {}
    for step in plan.steps:
        place = told.setdefault(step.gates, step.id) if step.gates else step.id
        first = (step.id, duration(step.expected_seconds) if step.expected_seconds else "?")
        if place != step.id:
            yield (*first, "as", place)
        elif not step.gates:
            yield first
        for gate in step.gates if place == step.id else ():
            # A command costs no request that is known here, and takes its time limit at most.
            command = (gate.gate, f"a command, {duration(gate.seconds or 0.0)} at most", NOTHING, NOTHING, NOTHING)
            # Of several sources that count for one gate, the one that it waits for.
            slowest = max(gate.forecasts, key=lambda each: each.canary_requests_to_pass or float("inf"), default=None)
            yield (*first, *(forecast_cells(slowest) if slowest else command))
            first = ("", "")


def _outline(plan: AnyPlan) -> tuple[str, str, str, list[str], list[str]]:
    """What is delivered, what it is compared with, how long it takes, who is asked, and how to read the rows."""
    if isinstance(plan, UnresolvedPlan):
        delivered, champion = f"models:/{plan.model}@{plan.origin}", f"{plan.target} was not looked up (--offline)"
    else:
        engine = f"engine {plan.on_trial} of " if plan.is_engine_change else ""
        delivered, champion = f"{engine}{plan.version.uri}", f"champion is version {plan.in_production}"
    takes = f"about {duration(plan.expected_seconds)} when every gate answers as soon as it can"
    asked = [f"{step.id} waits for an approval of {', '.join(step.approvals)}" for step in plan.steps if step.approvals]
    shown = [forecast for step in plan.steps for gate in step.gates for forecast in gate.forecasts]
    return delivered, champion, takes, asked, forecast_notes(shown, Assumptions()) if shown else []


def plan_markdown(plan: AnyPlan, spec: str, more: Sequence[str] = ()) -> str:
    """The comment; `spec` is the file's name as it was given, `more` are lines that stand next to the approvals."""
    delivered, champion, takes, asked, notes = _outline(plan)
    head = f"{delivered} → {', '.join(plan.regions)}"
    table = [f"| {' | '.join(PLAN_COLUMNS)} |", "|---" * len(PLAN_COLUMNS) + "|"]
    for row in plan_rows(plan):
        table.append(f"| {' | '.join(map(table_cell, _whole(row)))} |")
    parts = [
        [_marker_line(spec), f"### {table_cell(head)}"],
        [table_cell(f"{takes.capitalize()}. The {champion}.")],
        [f"- {table_cell(line)}" for line in (*asked, *more)],
        [f"<details><summary>{len(plan.steps)} steps</summary>"],
        table,
        [table_cell(line) for line in notes],
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


def plan_lines(plan: AnyPlan) -> Iterator[str]:
    """The plan as a table, and how to read it."""
    delivered, champion, takes, asked, notes = _outline(plan)
    yield f"{delivered} -> {', '.join(plan.regions)}; {champion}"
    yield from aligned([_whole(row) for row in (PLAN_COLUMNS, *plan_rows(plan))])
    yield from (*asked, takes, *notes)


def forecast_lines(name: str, found: Sequence[GateForecast], assumed: Assumptions) -> Iterator[str]:
    """A line for each gate and source, and what would mend those that come too late."""
    yield name
    rows = ((each.gate, each.source or "", *forecast_cells(each)[1:]) for each in found)
    yield from aligned([(COLUMNS[0], "counted by", *COLUMNS[1:]), *rows])
    for forecast in found:
        if forecast.proposals:
            told = (_proposed(change, value) for change, value in forecast.proposals.items())
            yield f"{forecast.gate} would be in time with {' or '.join(told)}"
    yield from forecast_notes(found, assumed)


def _proposed(change: Change, value: float) -> str:
    if change == "within":
        return format_duration(timedelta(seconds=value))
    return f"{value:g} % of users" if change == "percent" else f"{value:g} pairs a second"


def _whole(row: tuple[str, ...]) -> tuple[str, ...]:
    """With a cell for each of `PLAN_COLUMNS`."""
    return (*row, *[""] * (len(PLAN_COLUMNS) - len(row)))
