"""The files of an export, in the order in which a person would read them; nothing here writes them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from slo.alertmanager import alertmanager_config
from slo.catalogue import group_of
from slo.dashboards import dashboard_json, dashboards_of
from slo.export.model import Exported, Wanted
from slo.export.objects import analysis_templates, pod_monitors, prometheus_rules
from slo.export.wording import ALERTMANAGER, MARK_OF_JSON, SLOTH
from slo.formats.write import write_prometheus
from slo.model import SloGroup
from slo.outputs import rule_file
from slo.outputs.layout import written
from slo.rules import rules_for
from slo.signals import signal_groups
from slo.windows import windows_for
from tidegate.core.quantities import format_duration

_SLOTHS_OWN = timedelta(days=30)
"""The period that Sloth takes when nobody says one."""


def exported(wanted: Wanted) -> tuple[Exported, ...]:
    """Every file; the same input gives the same bytes."""
    group = group_of(wanted.promises, service=wanted.delivery, counted_by=wanted.counted_by)
    signals = signal_groups(service=wanted.delivery, counted_by=wanted.counted_by, cost=wanted.cost)
    ruled = [(slo, rules_for(group.model_copy(update={"slos": (slo,)}), windows_for(slo.window))) for slo in group.slos]
    everything = [*(rules for _, groups in ruled for rules in groups), *signals]
    count = sum(len(rules.rules) for rules in everything)
    return (
        *_sloth(group),
        Exported(name="rules.yaml", text=rule_file(everything), holds=f"{count} rules: SLOs, alerts and signals"),
        prometheus_rules(wanted, ruled, signals),
        analysis_templates(wanted, group.slos),
        pod_monitors(wanted),
        _alertmanager(wanted),
        *_dashboards(wanted),
    )


def _sloth(group: SloGroup) -> Iterator[Exported]:
    """A file for each period: Sloth is told the period of a whole file when it is called."""
    for period in sorted({slo.window for slo in group.slos}, reverse=True):
        slos = tuple(slo for slo in group.slos if slo.window == period)
        length = format_duration(period)
        name = "sloth.yaml" if period == _SLOTHS_OWN else f"sloth-{length}.yaml"
        text = write_prometheus(group.model_copy(update={"slos": slos}))
        call = f"sloth generate -i {name} --default-slo-period {length}"
        yield Exported(
            name=name,
            text=SLOTH.format(call=call) + text,
            holds=f"{len(slos)} SLO{'s' * (len(slos) != 1)} over {length}, in Sloth's format",
        )


def _alertmanager(wanted: Wanted) -> Exported:
    availability = [promise.name for promise in wanted.promises if promise.errors is not None]
    config = alertmanager_config(wanted.delivery, availability)
    return Exported(
        name="alertmanager.yaml",
        text=written(config, header=ALERTMANAGER),
        holds="an example of routes: page to pager, ticket to tickets",
    )


def _dashboards(wanted: Wanted) -> Iterator[Exported]:
    made = dashboards_of(wanted.promises, service=wanted.delivery, cost=wanted.cost, counted_by=wanted.counted_by)
    for dashboard in made:
        yield Exported(
            name=f"dashboards/{dashboard.uid}.json",
            text=dashboard_json(dashboard, made),
            holds=f"a dashboard for Grafana: {dashboard.title}",
            mark=MARK_OF_JSON,
        )
