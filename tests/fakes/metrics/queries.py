"""Which series a query asks for, which there are, and what analyses make of these.

As much of an Argo Rollouts controller as our analysis templates use: arguments and conditions.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import promql_parser as promql

from slo.formats.read import MONTH, read_all
from slo.metrics import INVENTORY, PrometheusMetric
from slo.model import SloGroup


def series_of(query: str) -> frozenset[str]:
    """The names of the series that a query asks for."""
    found: set[str] = set()

    def note(node: promql.Expr) -> promql.Expr:
        if isinstance(node, promql.VectorSelector):
            found.add(node.name or "")
        return node

    promql.transform(promql.parse(query), None, note)
    return frozenset(found)


def metric_of(series: str) -> PrometheusMetric | None:
    """The metric that exports a series: of `x_bucket`, the histogram `x`; None when nobody does."""
    return next((metric for metric in INVENTORY.values() if series in metric.series), None)


def read(text: str, *, file: str, default_period: timedelta = MONTH) -> list[SloGroup]:
    """The SLOs of every document of one file."""
    return read_all({file: text}, default_period=default_period)[file]


_CONDITION = re.compile(r"len\(result\) == 1 && all\(result, \{# (>|<=) ([0-9.]+)\}\)")
_COMPARE = {">": operator.gt, "<=": operator.le}


def outcome(metric: Mapping[str, Any], result: Sequence[float]) -> str:
    """What a measurement is called; failure is asked first, and neither condition means nothing is known."""
    if _holds(metric["failureCondition"], result):
        return "Failed"
    return "Successful" if _holds(metric["successCondition"], result) else "Inconclusive"


def filled_in(template: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Every metric's query with its arguments; a KeyError when one is neither given nor has a default."""
    defaults = {arg["name"]: arg["value"] for arg in template["spec"]["args"] if "value" in arg}
    values = defaults | dict(given)

    def fill(text: str) -> str:
        return re.sub(r"\{\{args\.([a-z-]+)\}\}", lambda match: values[match[1]], text)

    return {m["name"]: fill(m["provider"]["prometheus"]["query"]) for m in template["spec"]["metrics"]}


def together(templates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The metrics of templates that stand in one step; an AssertionError where the controller refuses them."""
    defaults: dict[str, str | None] = {}
    metrics: dict[str, dict[str, Any]] = {}
    for template in templates:
        for argument in template["spec"]["args"]:
            name, value = argument["name"], argument.get("value")
            assert None in {value, defaults.get(name)} or defaults[name] == value, f"{name} with two values"
            defaults[name] = value if defaults.get(name) is None else defaults[name]
        for metric in template["spec"]["metrics"]:
            assert metric["name"] not in metrics, f"two metrics called {metric['name']}"
            metrics[metric["name"]] = metric
    return list(metrics.values())


def _holds(condition: str, result: Sequence[float]) -> bool:
    match = _CONDITION.fullmatch(condition)
    assert match is not None, condition
    return len(result) == 1 and all(_COMPARE[match[1]](value, float(match[2])) for value in result)
