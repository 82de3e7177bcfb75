"""Records an SLO's share of bad events, over every window that an alert or a person asks for."""

from __future__ import annotations

from datetime import timedelta

from slo.durations import prometheus_duration
from slo.model import WINDOW_PLACE, Events, Raw, Slo
from slo.rules.conventions import WINDOW, identity, numerator_correction, selector, sli_error
from slo.rules.model import Rule
from slo.windows.model import Windows
from tidegate.core.errors import UsageError


def sli_rules(slo: Slo, windows: Windows) -> tuple[Rule, ...]:
    """One rule for each window; the one of the period averages what the shortest window recorded."""
    return tuple(_sli_rule(slo, window, windows) for window in windows.lengths)


def correction_rules(slo: Slo, windows: Windows) -> tuple[Rule, ...]:
    """How busy each window was, against the period's mean; what a denominator-corrected SLO is weighed by.

    Raises:
        UsageError: when the SLO counts no events.
    """
    total = _events(slo).total_query
    return tuple(
        Rule(
            record=numerator_correction(window),
            expr=f"({over(total, window)})/({over(total, windows.period)})",
            labels=identity(slo) | dict(slo.labels),
        )
        for window in windows.lengths
        if window != windows.period
    )


def over(query: str, window: timedelta) -> str:
    """`query` with the window in its place."""
    return WINDOW_PLACE.sub(prometheus_duration(window), query)


def _sli_rule(slo: Slo, window: timedelta, windows: Windows) -> Rule:
    return Rule(
        record=sli_error(window),
        expr=_average(slo, windows) if window == windows.period else over(_error_ratio(slo, window), window),
        labels=identity(slo) | {WINDOW: prometheus_duration(window)} | dict(slo.labels),
    )


def _average(slo: Slo, windows: Windows) -> str:
    """A month of raw events would be read at every evaluation otherwise; exact when traffic is even."""
    recorded = f"{sli_error(windows.page.quick.short)}{selector(identity(slo))}"
    period = prometheus_duration(windows.period)
    return f"sum_over_time({recorded}[{period}])\n/ ignoring ({WINDOW})\ncount_over_time({recorded}[{period}])\n"


def _error_ratio(slo: Slo, window: timedelta) -> str:
    if isinstance(slo.sli, Raw):
        return f"({slo.sli.error_ratio_query})"
    error, total = slo.sli.error_query, slo.sli.total_query
    if not slo.denominator_corrected:
        return f"({error})\n/\n({total})\n"
    correction = f"{numerator_correction(window)}{selector(identity(slo))}"
    # No parentheses around the error query, because Sloth puts none: an `or` in it is then not corrected.
    return f"(\n{correction}\n* on()\n{error}\n)\n/\n({total})\n"


def _events(slo: Slo) -> Events:
    if not isinstance(slo.sli, Events):
        raise UsageError(f"{slo.id} is denominator-corrected but counts no events")
    return slo.sli
