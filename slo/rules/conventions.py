"""The names of Sloth's series and labels, in one place: dashboards and people know them by heart."""

from __future__ import annotations

from datetime import timedelta

from slo.durations import prometheus_duration
from slo.model import Labels, Slo

SLOTH_VERSION = "v0.16.0"
"""Whose rules these are; dashboards and humans read it from the label `sloth_version`."""

ID, SLO, SERVICE = "sloth_id", "sloth_slo", "sloth_service"
WINDOW, SEVERITY = "sloth_window", "sloth_severity"
VERSION, MODE, SPEC, OBJECTIVE = "sloth_version", "sloth_mode", "sloth_spec", "sloth_objective"

OBJECTIVE_RATIO = "slo:objective:ratio"
ERROR_BUDGET_RATIO = "slo:error_budget:ratio"
PERIOD_DAYS = "slo:time_period:days"
CURRENT_BURN_RATE = "slo:current_burn_rate:ratio"
PERIOD_BURN_RATE = "slo:period_burn_rate:ratio"
BUDGET_REMAINING = "slo:period_error_budget_remaining:ratio"
INFO = "sloth_slo_info"


def sli_error(window: timedelta) -> str:
    """The recorded share of bad events over `window`."""
    return f"slo:sli_error:ratio_rate{prometheus_duration(window)}"


def numerator_correction(window: timedelta) -> str:
    """The recorded number of events in `window`, over what the period's mean would be."""
    return f"slo:numerator_correction:ratio{prometheus_duration(window)}"


def identity(slo: Slo) -> dict[str, str]:
    """The labels that tell an SLO's series from all others."""
    return {ID: slo.id, SERVICE: slo.service, SLO: slo.name}


def selector(labels: Labels) -> str:
    """`{a="1", b="2"}`, for names and values that need no escapes, as an SLO's have none."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"


def number(value: float) -> str:
    """The shortest text of the same number, without a needless `.0`."""
    return repr(float(value)).removesuffix(".0")
