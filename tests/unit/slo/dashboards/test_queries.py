"""Every query asks for series that somebody exports or records; a real Prometheus has data for them (integration)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
from fakes.metrics.queries import known_series, series_of
from fakes.metrics.slos import COST, SLOS

from slo.dashboards import Dashboard, dashboard_json, dashboards_of
from slo.dashboards.fill import SELECTORS
from slo.dashboards.model import Prerequisite
from slo.metrics import metric_of
from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy, SloSpec

SERVICE = "chat"
FIRING = SELECTORS["firing"]
VARIABLE_QUERIES = [
    variable["query"]
    for variable in json.loads(dashboard_json(dashboards_of((), service=SERVICE)[0]))["templating"]["list"]
    if variable["type"] == "query"
]
WAYS: list[tuple[tuple[SloSpec, ...], CostSpec | None]] = [(SLOS, COST), (SLOS, None), ((), COST), ((), None)]


def queries(dashboards: Iterable[Dashboard]) -> list[tuple[str, str]]:
    """Title of the panel, expression."""
    return [
        (panel.title, query.expr) for dashboard in dashboards for panel in dashboard.panels for query in panel.queries
    ]


@pytest.mark.parametrize("counted_by", CountedBy)
@pytest.mark.parametrize(("slos", "cost"), WAYS)
def test_every_query_has_its_series(slos: tuple[SloSpec, ...], cost: CostSpec | None, counted_by: CountedBy) -> None:
    # What is recorded of SLOs has the same names, whichever of them a delivery has.
    known = known_series(SLOS, service=SERVICE, counted_by=counted_by, cost=cost)
    asked = queries(dashboards_of(slos, service=SERVICE, cost=cost, counted_by=counted_by))
    assert {title: unknown for title, expr in asked if (unknown := series_of(expr) - known)} == {}


def test_what_only_a_proxy_counts_is_not_asked_of_engines() -> None:
    levels = {way: dashboards_of(SLOS, service=SERVICE, counted_by=way) for way in CountedBy}
    titles = {way: {title for title, _ in queries(found)} for way, found in levels.items()}
    assert titles[CountedBy.PROXY] - titles[CountedBy.ENGINE] == {"Regeneration: users who ask again"}


def test_variables_and_annotations_are_queries_too() -> None:
    known = known_series(SLOS, service=SERVICE, counted_by=CountedBy.PROXY, cost=COST)
    assert series_of(FIRING) <= known
    for query in VARIABLE_QUERIES:
        found = re.fullmatch(r"label_values\((.+), \w+\)", query)
        assert found and series_of(found[1]) <= known


def test_no_query_sees_other_services() -> None:
    everything = [query for _, query in queries(dashboards_of(SLOS, service=SERVICE, cost=COST))]
    for query in (*everything, FIRING, *(query.removeprefix("label_values") for query in VARIABLE_QUERIES)):
        asked, told = len(re.findall(r"\b(?:tidegate[:_]|slo:|ALERTS)", query)), query.count('service="$service"')
        assert asked == told > 0, query


def test_without_a_price_nothing_is_asked_about_money() -> None:
    assert not [expr for _, expr in queries(dashboards_of(SLOS, service=SERVICE)) if "cost" in expr]


@pytest.mark.parametrize(
    ("needs", "only_with"),
    [
        (Prerequisite.GPU, "a GPU"),
        (Prerequisite.SPECULATION, "speculative decoding"),
        (Prerequisite.ENTRYPOINT, "our entrypoint"),
    ],
)
def test_what_not_every_engine_exports_says_what_it_needs_and_nothing_else_does(
    needs: Prerequisite, only_with: str
) -> None:
    dependent = signals_of(only_with)
    for dashboard in dashboards_of(SLOS, service=SERVICE, cost=COST):
        for panel in dashboard.panels:
            for query in panel.queries:
                asks = bool(series_of(query.expr) & dependent)
                assert asks == (query.needs is needs), panel.title


def signals_of(only_with: str) -> set[str]:
    """Recorded series that rest on metrics which are exported only with that."""
    rules = [
        rule for group in signal_groups(service=SERVICE, counted_by=CountedBy.PROXY, cost=COST) for rule in group.rules
    ]
    found = set()
    for rule in rules:
        metrics = (metric_of(name) for name in series_of(rule.expr))
        if any(metric and only_with in metric.only_with for metric in metrics):
            found.add(rule.record)
    assert found
    return found
