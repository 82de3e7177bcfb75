"""Every panel's query has data in a real Prometheus once somebody exports what it rests on, GPUs and judges too.

Also where engines count the requests, and with the labels that its legend shows.
"""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

import pytest
from fakes.metrics.queries import metric_of, series_of
from fakes.metrics.slos import COST, SLOS
from fakes.services.http import page
from fakes.services.prometheus import asked, prometheus
from fakes.waiting import until

from slo.catalogue import group_of
from slo.dashboards.grafana import ANYTHING, SELECTORS, dashboard_json, dashboards_of, panels_of
from slo.metrics import INVENTORY, TARGET, MetricKind, PrometheusMetric
from slo.outputs import rule_file
from slo.rules import RuleGroup, rules_for
from slo.signals import signal_groups
from slo.spec import CountedBy
from slo.windows import windows_for

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus")

SERVICE, ANOTHER, COUNTED_BY_ENGINES = "chat", "code", "batch"
SERVICES = {SERVICE: CountedBy.PROXY, ANOTHER: CountedBy.PROXY, COUNTED_BY_ENGINES: CountedBy.ENGINE}

VARIABLE_QUERIES = [
    (found[1], f"{{{{{found[2]}}}}}")
    for variable in json.loads(dashboard_json(dashboards_of((), service=SERVICE)[0]))["templating"]["list"]
    if (found := re.fullmatch(r"label_values\((.+), (\w+)\)", str(variable.get("query"))))
]
"""What variables are chosen from, and by which label, written as a legend."""

LABELS = {
    "service": tuple(SERVICES),
    "region": ("eu-west-1", "us-east-1"),
    "role": ("stable", "canary"),
    "envoy_response_code": ("200", "503"),
    "envoy_virtual_host": ("users",),
    "method": ("POST",),
    "handler": ("/v1/chat/completions",),
    "status": ("2xx", "5xx"),
    "finished_reason": ("stop", "length", "error"),
    "dimension": ("overall", "accuracy", "golden"),
    "gate": ("drift",),
    "number": (
        "length_psi",
        "length_psi_allowed",
        "canary_refusal_share",
        *(f"evidence_{side}{end}" for side in ("fine", "worse") for end in ("", "_needed")),
    ),
    "outcome": ("pass", "running", "inconclusive", "error", "fail"),
    "stage": ("canary",),
}
"""Values that queries ask for; of any other label one value is as good as another."""


def groups() -> tuple[RuleGroup, ...]:
    """Of services which know nothing of each other."""
    return tuple(group for service in SERVICES for group in groups_of(service))


def groups_of(service: str) -> tuple[RuleGroup, ...]:
    found = signal_groups(service=service, counted_by=SERVICES[service], cost=COST)
    made = group_of(SLOS, service=service, counted_by=SERVICES[service])
    return (*found, *rules_for(made, windows_for(SLOS[0].window)))


def exposition(metrics: list[PrometheusMetric]) -> str:
    """All of them now: counters rise by one a second, gauges stand at one half."""
    return "".join(line for metric in metrics for line in samples(metric, time.monotonic()))


def samples(metric: PrometheusMetric, seconds: float) -> Iterator[str]:
    for values in product(*(LABELS.get(label, ("0",)) for label in metric.labels)):
        labels = dict(zip(metric.labels, values, strict=True))
        # Whom a series without a part in a delivery is about.
        labels["version"] = {"canary": "7"}.get(labels.get("role", ""), "6")
        shown = ",".join(f'{name}="{value}"' for name, value in labels.items() if name in {*metric.labels, *TARGET})
        if metric.kind is MetricKind.HISTOGRAM:
            for index, edge in enumerate((*map(repr, map(float, metric.edges)), "+Inf"), start=1):
                yield f'{metric.name}_bucket{{{shown},le="{edge}"}} {seconds * index}\n'
            yield f"{metric.name}_count{{{shown}}} {seconds * (len(metric.edges) + 1)}\n"
        else:
            yield f"{metric.name}{{{shown}}} {seconds if metric.kind is MetricKind.COUNTER else 0.5}\n"


@pytest.fixture(scope="module")
def exporter() -> Iterator[str]:
    names = {name for group in groups() for rule in group.rules for name in series_of(rule.expr)}
    names |= {name for name in INVENTORY if name.startswith("tidegate_")}
    metrics = list({metric.name: metric for name in sorted(names) if (metric := metric_of(name))}.values())

    with page(lambda: exposition(metrics)) as address:
        yield address


@pytest.fixture(scope="module")
def url(exporter: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home: Path = tmp_path_factory.mktemp("prometheus")
    (home / "rules.yaml").write_text(rule_file(groups()))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "all", "honor_labels": True, "static_configs": [{"targets": [exporter]}]},
        ],
    }
    with prometheus(home, config) as address:
        yield address


@pytest.mark.slow(reason="Prometheus scrapes for some seconds")
def test_every_query_of_every_panel_has_data(url: str) -> None:
    waiting = {
        (service, query["expr"], query["legend"])
        for service in (SERVICE, COUNTED_BY_ENGINES)
        for dashboard in dashboards_of(SLOS, service=service, cost=COST, counted_by=SERVICES[service])
        for panel in panels_of(dashboard)
        for query in panel["queries"]
    } | {(SERVICE, SELECTORS["firing"], ""), *((SERVICE, *query) for query in VARIABLE_QUERIES)}
    for query in sorted(waiting):
        until(f"{query} is answered", lambda query=query: answered(url, *query))


def test_the_rules_of_two_services_are_evaluated_side_by_side(url: str) -> None:
    assert len(rules_of(url)) == sum(len(group.rules) for group in groups())
    # A Prometheus that is late by more than its interval judges one moment twice ("duplicate sample for timestamp"),
    # and is well at the next one; two rules for one series never are.
    until("no rule fails", lambda: {rule.get("lastError", "") for rule in rules_of(url)} == {""})
    recorded = asked(url, 'count by (service) ({__name__=~"tidegate:.+"})')
    counts = {sample["metric"]["service"]: sample["value"][1] for sample in recorded}
    assert counts.keys() == SERVICES.keys()
    assert counts[SERVICE] == counts[ANOTHER]


def rules_of(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=60) as answer:
        return [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]


def answered(url: str, service: str, expr: str, legend: str) -> bool:
    """Whether there is a number, with the labels of the legend; one that is none would be an empty panel."""
    chosen = Template(expr).safe_substitute(service=service, region=ANYTHING, version=ANYTHING)
    shown = set(re.findall(r"{{(\w+)}}", legend))
    return any(sample["value"][1] != "NaN" and shown <= sample["metric"].keys() for sample in asked(url, chosen))


def test_what_is_chosen_is_all_that_is_shown(url: str) -> None:
    """As Grafana fills in several regions and one version."""
    for dashboard in dashboards_of(SLOS, service=SERVICE, cost=COST):
        for panel in panels_of(dashboard):
            for query in panel["queries"]:
                chosen = Template(query["expr"]).safe_substitute(
                    service=SERVICE, region="(eu-west-1|us-gone)", version="7"
                )
                assert {sample["metric"].get("region", "eu-west-1") for sample in asked(url, chosen)} <= {"eu-west-1"}
