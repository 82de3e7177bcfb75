"""The Prometheus rules of SLOs, byte for byte those of Sloth v0.16: error ratios, metadata, burn-rate alerts.

`rules_for` is where to start. Rules are values here; `slo.outputs` writes them as files and Kubernetes objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import Field

from slo.model import WINDOW_PLACE, Alert, Labels, RawSli, Slo, SloGroup
from slo.windows import AlertWindow, AlertWindows
from tidegate.core.model import Json, Value
from tidegate.core.units import prometheus_duration

SLOTH_RELEASE = "v0.16.0"
"""Whose rules these are; dashboards and humans read it from the label `sloth_version`."""

SLOTH_ID, SLOTH_SLO, SLOTH_SERVICE = "sloth_id", "sloth_slo", "sloth_service"
SLOTH_WINDOW, SLOTH_SEVERITY = "sloth_window", "sloth_severity"
SLOTH_VERSION, SLOTH_MODE, SLOTH_SPEC, SLOTH_OBJECTIVE = "sloth_version", "sloth_mode", "sloth_spec", "sloth_objective"

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


def identity(slo: Slo) -> dict[str, str]:
    """The labels that tell an SLO's series from all others."""
    return {SLOTH_ID: slo.id, SLOTH_SERVICE: slo.service, SLOTH_SLO: slo.name}


def selector(labels: Labels) -> str:
    """`{a="1", b="2"}`, for names and values that need no escapes, as an SLO's have none."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"


def number(value: float) -> str:
    """The shortest text of the same number, without a needless `.0`."""
    return repr(float(value)).removesuffix(".0")


@dataclass(frozen=True, slots=True)
class Rule:
    """Records a series, or raises an alert."""

    expr: str
    record: str = ""
    """The name of the recorded series; empty for an alert."""
    alert: str = ""
    hold: timedelta | None = None
    """How long an alert's expression must hold before it fires: Prometheus' key `for`."""
    labels: Labels = field(default_factory=dict)
    annotations: Labels = field(default_factory=dict)
    """Of alerts only."""

    def __post_init__(self) -> None:
        if bool(self.record) == bool(self.alert):
            raise ValueError("a rule has a record or an alert, one of them")
        if self.record and (self.annotations or self.hold):
            raise ValueError("a recording rule has neither annotations nor a hold")

    def to_dict(self) -> Json:
        name: Json = {"record": self.record} if self.record else {"alert": self.alert}
        rest: Json = {
            "for": prometheus_duration(self.hold) if self.hold else None,
            "labels": dict(sorted(self.labels.items())),
            "annotations": dict(sorted(self.annotations.items())),
        }
        return name | {"expr": self.expr} | {key: value for key, value in rest.items() if value}


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that Prometheus evaluates one after the other."""

    name: str
    """Unique in a file."""
    rules: tuple[Rule, ...]

    def to_dict(self) -> Json:
        return {"name": self.name, "rules": [rule.to_dict() for rule in self.rules]}


def sli_rules(slo: Slo, windows: AlertWindows) -> tuple[Rule, ...]:
    """One rule for each window; the one of the period averages what the shortest window recorded."""
    return tuple(
        Rule(
            record=sli_error(window),
            expr=_average(slo, windows) if window == windows.period else over(_error_ratio(slo), window),
            labels=identity(slo) | {SLOTH_WINDOW: prometheus_duration(window)} | dict(slo.labels),
        )
        for window in windows.lengths
    )


def over(query: str, window: timedelta) -> str:
    """`query` with the window in its place."""
    return WINDOW_PLACE.sub(prometheus_duration(window), query)


def _average(slo: Slo, windows: AlertWindows) -> str:
    """A month of raw events would be read at every evaluation otherwise; exact when traffic is even."""
    recorded = f"{sli_error(windows.page.quick.short)}{selector(identity(slo))}"
    period = prometheus_duration(windows.period)
    return f"sum_over_time({recorded}[{period}])\n/ ignoring ({SLOTH_WINDOW})\ncount_over_time({recorded}[{period}])\n"


def _error_ratio(slo: Slo) -> str:
    if isinstance(slo.sli, RawSli):
        return f"({slo.sli.error_ratio_query})"
    error, total = slo.sli.error_query, slo.sli.total_query
    return f"({error})\n/\n({total})\n"


def metadata_rules(slo: Slo, group: SloGroup, windows: AlertWindows) -> tuple[Rule, ...]:
    """Objective, budget, period, both burn rates, what is left, and where the SLO came from."""
    objective = number(slo.objective / 100)
    expressions = {
        OBJECTIVE_RATIO: f"vector({objective})",
        ERROR_BUDGET_RATIO: f"vector(1-{objective})",
        PERIOD_DAYS: f"vector({number(windows.period / timedelta(days=1))})",
        CURRENT_BURN_RATE: _burn_rate(slo, windows.page.quick.short),
        PERIOD_BURN_RATE: _burn_rate(slo, windows.period),
        BUDGET_REMAINING: f"1 - {PERIOD_BURN_RATE}{selector(identity(slo))}",
    }
    labels = identity(slo) | dict(slo.labels)
    source = {
        SLOTH_VERSION: SLOTH_RELEASE,
        SLOTH_MODE: group.mode,
        SLOTH_SPEC: group.spec,
        SLOTH_OBJECTIVE: number(slo.objective),
    }
    rules = [Rule(record=name, expr=expression, labels=labels) for name, expression in expressions.items()]
    return (*rules, Rule(record=INFO, expr="vector(1)", labels=labels | source))


def _burn_rate(slo: Slo, window: timedelta) -> str:
    """Times the speed that would spend the whole budget exactly in the period."""
    mine = selector(identity(slo))
    same_slo = f"on({SLOTH_ID}, {SLOTH_SLO}, {SLOTH_SERVICE}) group_left"
    return f"{sli_error(window)}{mine}\n/ {same_slo}\n{ERROR_BUDGET_RATIO}{mine}\n"


def alert_rules(slo: Slo, windows: AlertWindows) -> tuple[Rule, ...]:
    """Those of the SLO's two alerts that are not disabled."""
    both = {"page": slo.page, "ticket": slo.ticket}
    return tuple(_alert_rule(slo, alert, severity, windows) for severity, alert in both.items() if alert)


def _alert_rule(slo: Slo, alert: Alert, severity: str, windows: AlertWindows) -> Rule:
    speeds = windows.page if severity == "page" else windows.ticket
    quick, slow = (_burns(slo, window, windows.factor(window)) for window in (speeds.quick, speeds.slow))
    subject = f"{{{{$labels.{SLOTH_SERVICE}}}}} {{{{$labels.{SLOTH_SLO}}}}} SLO error budget burn rate is"
    annotations = {"summary": f"{subject} over expected.", "title": f"({severity}) {subject} too fast."}
    return Rule(
        alert=alert.name,
        expr=f"{quick}\nor\n{slow}\n",
        # The SLO's own labels are on the series already, and so come to the alert by themselves.
        labels={SLOTH_SEVERITY: severity} | dict(alert.labels),
        annotations=annotations | dict(alert.annotations),
    )


def _burns(slo: Slo, window: AlertWindow, factor: float) -> str:
    """Both windows must burn: the long one says that it matters, the short one that it still goes on."""
    threshold = f"({number(factor)} * {number(slo.error_budget)})"
    sides = (
        f"    max({sli_error(length)}{selector(identity(slo))} > {threshold}) without ({SLOTH_WINDOW})"
        for length in (window.short, window.long)
    )
    return "(\n" + "\n    and\n".join(sides) + "\n)"


class RuleOptions(Value):
    """What a run asks of all its rules."""

    extra_labels: Labels = Field(default_factory=dict)
    """Added to everything recorded; they win over the SLO's own."""
    disable_recordings: bool = False
    """Alerts only: somebody else records."""
    disable_alerts: bool = False


_NOTHING_SPECIAL = RuleOptions()


def rules_for(group: SloGroup, windows: AlertWindows, options: RuleOptions = _NOTHING_SPECIAL) -> tuple[RuleGroup, ...]:
    """Up to three groups for each SLO: shares of bad events, metadata, alerts; a group without rules is left out."""
    groups = []
    for given in group.slos:
        assert given.window == windows.period, "windows are those of the SLO's own period"
        slo = given.model_copy(update={"labels": {**given.labels, **options.extra_labels}})
        parts: dict[str, tuple[Rule, ...]] = {}
        if not options.disable_recordings:
            parts["sli-recordings"] = sli_rules(slo, windows)
            parts["meta-recordings"] = metadata_rules(slo, group, windows)
        if not options.disable_alerts:
            parts["alerts"] = alert_rules(slo, windows)
        names = ((f"sloth-slo-{part}-{slo.id}", rules) for part, rules in parts.items() if rules)
        groups += [RuleGroup(name=name, rules=rules) for name, rules in names]
    return tuple(groups)
