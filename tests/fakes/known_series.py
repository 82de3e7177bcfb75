"""Which series there are to ask for, and with which labels: what is scraped, and what rules make of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fakes.query_labels import Labels, read_labels
from slo.catalogue import group_of
from slo.metrics import INVENTORY
from slo.rules import Rule, RuleGroup, rules_for
from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy, SloSpec
from slo.windows import windows_for

_OF_PROMETHEUS = {"ALERTS": frozenset({"alertname", "alertstate"})}
"""Beside these, an alert's own labels."""


def known_series(
    slos: Sequence[SloSpec], *, service: str, counted_by: CountedBy, cost: CostSpec | None
) -> Mapping[str, Labels]:
    """Labels by the name of the series, for a Prometheus that has the rules of `slos` and those of the signals."""
    groups = signal_groups(service=service, counted_by=counted_by, cost=cost)
    if slos:
        made = group_of(slos, service=service, counted_by=counted_by)
        groups += tuple(
            found
            for slo in made.slos
            for found in rules_for(made.model_copy(update={"slos": (slo,)}), windows_for(slo.window))
        )
    return with_rules(_scraped(), groups)


def with_rules(known: Mapping[str, Labels], groups: Iterable[RuleGroup]) -> Mapping[str, Labels]:
    """`known`, and what rules record of it; an alert's labels are those of all alerts."""
    there = dict(known) | dict(_OF_PROMETHEUS)
    for rule in (rule for group in groups for rule in group.rules):
        name = rule.record or "ALERTS"
        there[name] = there.get(name, frozenset()) | _labels(rule, there)
    return there


def _labels(rule: Rule, known: Mapping[str, Labels]) -> Labels:
    return read_labels(rule.expr, known).labels | frozenset(rule.labels)


def _scraped() -> Mapping[str, Labels]:
    return {name: frozenset(labels) for metric in INVENTORY.values() for name, labels in metric.series.items()}
