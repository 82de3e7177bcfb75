"""`tidegate gate plan`: what the gates of a file need of the traffic that is expected."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gates.planning.forecast import forecasts, with_proposals
from gates.sequential_test import AnalysisPlan
from gates.traffic import Assumptions, Exposure
from tidegate.app.wiring.gates.gate_sets import read_gates
from tidegate.cli.output import Output, print_data
from tidegate.cli.views.plan import print_forecasts
from tidegate.core.errors import ExitCode, UsageError


@dataclass(frozen=True)
class ExpectedTraffic:
    """Traffic as it was typed."""

    requests_per_second: float | None
    weight: float
    pairs_per_second: float | None
    within: timedelta
    error_rate: str
    spread: float
    stable_pods: int


def plan_gates(gates: Path, expected: ExpectedTraffic, *, output: Output) -> int:
    """Tell what every gate needs; the exit code is 3 when one would not pass a healthy version in time."""
    judged = read_gates(gates)
    terms = judged.planned(expected.within)
    exposure = _exposure(terms, expected, judged.look)
    assumed = Assumptions(
        error_rate=_error_rate(expected.error_rate), spread=expected.spread, stable_pods=expected.stable_pods
    )
    found = [with_proposals(terms, forecast, exposure, assumed) for forecast in forecasts(terms, exposure, assumed)]
    if output.is_data:
        told = [forecast.model_dump(mode="json") for forecast in found]
        print_data({"name": judged.name, "expected": assumed.model_dump(), "gates": told}, output)
    else:
        print_forecasts(judged.name, found, assumed)
    return ExitCode.DELIVERED if all(forecast.reachable for forecast in found) else ExitCode.INCONCLUSIVE


def _exposure(terms: AnalysisPlan, expected: ExpectedTraffic, look: timedelta) -> Exposure:
    return Exposure(
        requests_per_second=expected.requests_per_second,
        percent=expected.weight if terms.mirrored is None else terms.mirrored * 100,
        mirrored=terms.mirrored is not None,
        pairs_per_second=expected.pairs_per_second,
        within_seconds=expected.within.total_seconds(),
        look_seconds=look.total_seconds(),
    )


def _error_rate(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (text.endswith("%") and 0 <= share < 1):
        raise UsageError(f"--error-rate: got {text}", hint="a percent such as 0.5%")
    return share
