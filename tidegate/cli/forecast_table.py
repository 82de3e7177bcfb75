"""What gates will do, as cells of a table: for `tidegate plan` and `tidegate gate plan`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp

from gates.planning.expected import Assumptions
from gates.planning.forecast import GateForecast
from gates.planning.forecasts import LIKELY
from pipelines.wording import duration

COLUMNS = ("gate", "healthy: passes after", "regression", "caught after", "seen in time")
NOTHING = "-"


def cells(forecast: GateForecast) -> tuple[str, ...]:
    """One for each of `COLUMNS`."""
    return (
        forecast.gate,
        _after(forecast.canary_requests_to_pass, forecast.unit, forecast.seconds_to_pass) + _mark(forecast),
        "all wrong" if forecast.source is None else size(forecast, forecast.regression_share),
        _after(forecast.canary_requests_to_fail, forecast.unit, forecast.seconds_to_fail),
        _seen(forecast),
    )


def slowest(forecasts: Sequence[GateForecast]) -> GateForecast:
    """Of several sources that count for one gate, the one that it waits for."""
    return max(forecasts, key=lambda each: each.canary_requests_to_pass or float("inf"))


def size(forecast: GateForecast, share: float) -> str:
    """A regression as people say it: `20 % slower`, `0.5 pp more`, `0.05 lower`."""
    if forecast.scale == "percent":
        return f"{float(f'{share * 100:.2g}'):g} % slower"
    if forecast.scale == "times":
        return f"{share:.2g} x allowed"
    return f"{share * 100:.2g} pp more" if forecast.scale == "points" else f"{share:.2g} lower"


def notes(shown: Iterable[GateForecast], assumed: Assumptions) -> list[str]:
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
        forecast.source != "probe" and forecast.seconds_to_pass is None and forecast.reachable for forecast in timed
    ):
        lines.append("Nobody says how many users there are (`traffic.requests_per_second`), so not how long it takes.")
    return lines


def _after(count: int | None, unit: str, seconds: float | None) -> str:
    if count is None:
        return "never"
    return f"{count:,} {unit}" + (f" in {duration(seconds)}" if seconds is not None else "")


def _seen(forecast: GateForecast) -> str:
    if forecast.smallest_regression_share is not None:
        return f"from {size(forecast, forecast.smallest_regression_share)}"
    return "none" if forecast.source is None or forecast.seconds_to_pass is not None else NOTHING


def _tight(forecast: GateForecast) -> bool:
    ends, passes = forecast.within_seconds, forecast.seconds_to_pass
    return ends is not None and passes is not None and passes <= ends < passes * LIKELY


def _mark(forecast: GateForecast) -> str:
    if not forecast.reachable:
        return " (too late)"
    return " (tight)" if _tight(forecast) else ""
