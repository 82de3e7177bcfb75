"""Alerts on burn rates: a page and a ticket, each on two speeds, each speed on two windows."""

from __future__ import annotations

from slo.model import Alert, Slo
from slo.rules.conventions import SERVICE, SEVERITY, SLO, WINDOW, identity, number, selector, sli_error
from slo.rules.model import Rule
from slo.windows.model import Speeds, Window, Windows


def alert_rules(slo: Slo, windows: Windows) -> tuple[Rule, ...]:
    """Those of the SLO's two alerts that are not disabled."""
    both = (("page", slo.page, windows.page), ("ticket", slo.ticket, windows.ticket))
    return tuple(_alert_rule(slo, alert, severity, speeds) for severity, alert, speeds in both if alert)


def _alert_rule(slo: Slo, alert: Alert, severity: str, speeds: Speeds) -> Rule:
    subject = f"{{{{$labels.{SERVICE}}}}} {{{{$labels.{SLO}}}}} SLO error budget burn rate is"
    annotations = {"summary": f"{subject} over expected.", "title": f"({severity}) {subject} too fast."}
    return Rule(
        alert=alert.name,
        expr=f"{_burns(slo, speeds.quick)}\nor\n{_burns(slo, speeds.slow)}\n",
        # The SLO's own labels are on the series already, and so come to the alert by themselves.
        labels={SEVERITY: severity} | dict(alert.labels),
        annotations=annotations | dict(alert.annotations),
    )


def _burns(slo: Slo, window: Window) -> str:
    """Both windows must burn: the long one says that it matters, the short one that it still goes on."""
    threshold = f"({number(window.factor)} * {number(slo.error_budget)})"
    sides = (
        f"    max({sli_error(length)}{selector(identity(slo))} > {threshold}) without ({WINDOW})"
        for length in (window.short, window.long)
    )
    return "(\n" + "\n    and\n".join(sides) + "\n)"
