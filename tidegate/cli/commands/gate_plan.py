"""`tidegate gate plan`: what gates will do with so much traffic, for any orchestrator."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gates.planning.expected import Assumptions
from gates.planning.forecast import Exposure, GateForecast
from gates.planning.forecasts import forecasts
from gates.planning.remedies import with_remedy
from gates.terms import Terms
from tidegate.cli.forecast_table import COLUMNS, cells, notes
from tidegate.cli.judged import read_gates
from tidegate.cli.output import print_json
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.quantities import parse_duration


@dataclass(frozen=True)
class Expected:
    """Traffic as it was typed."""

    requests_per_second: float | None
    weight: float
    pairs_per_second: float | None
    within: str
    error_rate: str
    spread: float
    stable_pods: int


def run(gates: Path, expected: Expected, *, as_json: bool) -> int:
    """Tell what every gate needs; the exit code is 3 when one would not pass a healthy version in time."""
    judged = read_gates(gates)
    within = _duration(expected.within)
    terms = judged.planned(within)
    exposure = _exposure(terms, expected, within, judged.look)
    assumed = Assumptions(
        error_rate=_share(expected.error_rate), spread=expected.spread, stable_pods=expected.stable_pods
    )
    found = [with_remedy(terms, forecast, exposure, assumed) for forecast in forecasts(terms, exposure, assumed)]
    if as_json:
        told = [forecast.model_dump(mode="json") for forecast in found]
        print_json({"name": judged.name, "expected": assumed.model_dump(), "gates": told})
    else:
        print_forecasts(judged.name, found, assumed)
    return ExitCode.DELIVERED if all(forecast.reachable for forecast in found) else ExitCode.INCONCLUSIVE


def print_forecasts(name: str, found: list[GateForecast], assumed: Assumptions) -> None:
    """A line for each gate and source, and what would mend those that come too late."""
    from rich.table import Table

    from tidegate.cli.console import PlainConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in (*COLUMNS[:1], "counted by", *COLUMNS[1:]):
        table.add_column(column, no_wrap=True)
    for forecast in found:
        gate, *rest = cells(forecast)
        table.add_row(gate, forecast.source, *rest)
    console = PlainConsole(file=sys.stdout, width=None if sys.stdout.isatty() else 150)
    console.print(name, soft_wrap=True)
    console.print(table)
    for forecast in found:
        if forecast.remedy:
            console.print(f"{forecast.gate} would be in time with one of:")
            for remedy in forecast.remedy:
                console.print(f"  {remedy}", soft_wrap=True)
    for line in notes(found, assumed):
        console.print(line, soft_wrap=True, style="dim")


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--within: got {text}", hint=f"{error}") from error


def _exposure(terms: Terms, expected: Expected, within: timedelta, look: timedelta) -> Exposure:
    return Exposure(
        requests_per_second=expected.requests_per_second,
        percent=expected.weight if terms.mirrored is None else terms.mirrored * 100,
        mirrored=terms.mirrored is not None,
        pairs_per_second=expected.pairs_per_second,
        within_seconds=within.total_seconds(),
        look_seconds=look.total_seconds(),
    )


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (text.endswith("%") and 0 <= share < 1):
        raise UsageError(f"--error-rate: got {text}", hint="a percent such as 0.5%")
    return share
