"""A plan and the forecasts of its gates: as lines for a terminal, and as the comment under a merge request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from math import exp

from gates.planning.forecast import LIKELY
from gates.traffic import Assumptions, Change, GateForecast
from pipelines.model import Plan, UnresolvedPlan
from tidegate.core.text import aligned, one_line, table_cell
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
    told: dict[str, str] = {}
    for step in plan.steps:
        place = told.setdefault(repr(step.gates), step.id) if step.gates else step.id
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


def plan_lines(plan: AnyPlan) -> Iterator[str]:
    """What is delivered and what it is compared with, the steps as a table, who is asked, how long it takes."""
    if isinstance(plan, UnresolvedPlan):
        delivered, champion = f"models:/{plan.model}@{plan.origin}", f"{plan.target} was not looked up (--offline)"
    else:
        engine = f"engine {plan.on_trial} of " if plan.is_engine_change else ""
        delivered, champion = f"{engine}{plan.version.uri}", f"champion is version {plan.in_production}"
    yield f"{delivered} -> {', '.join(plan.regions)}; {champion}"
    rows = (PLAN_COLUMNS, *plan_rows(plan))
    yield from aligned([(*row, *[""] * (len(PLAN_COLUMNS) - len(row))) for row in rows])
    for step in plan.steps:
        if step.approvals:
            yield f"{step.id} waits for an approval of {', '.join(step.approvals)}"
    yield f"about {duration(plan.expected_seconds)} when every gate answers as soon as it can"
    shown = [forecast for step in plan.steps for gate in step.gates for forecast in gate.forecasts]
    yield from forecast_notes(shown, Assumptions()) if shown else ()


def plan_comment(spec: str, head: str, *lines: str) -> str:
    """Of a plan, or of why there is none, as the comment under a merge request: what would be refused after the merge
    is told before it.

    Its first line nobody sees: by it a job finds the comment that it wrote before, and replaces it.
    """
    # Indented, since words of others stand in it.
    told = [f"    {one_line(each)}" for each in lines]
    return "\n".join([f"<!-- tidegate plan {spec} -->", f"### {table_cell(head)}", "", *told, ""])


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
