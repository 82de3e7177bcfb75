"""`/metrics` without engines and GPUs: what they export, metric by metric, and read again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slo.metrics import TARGET, MetricKind, PrometheusMetric


def registered(metric: PrometheusMetric, registry: CollectorRegistry) -> Any:
    """The metric, with the labels that its exporter sets itself."""
    labels = [label for label in metric.labels if label not in TARGET]
    if metric.kind is MetricKind.COUNTER and metric.name.endswith("_total"):  # which DCGM's exporter does not add
        return Counter(metric.name.removesuffix("_total"), "-", labels, registry=registry)
    if metric.kind is MetricKind.HISTOGRAM:
        return Histogram(metric.name, "-", labels, registry=registry, buckets=metric.edges or (1.0, 10.0))
    return Gauge(metric.name, "-", labels, registry=registry)


def exporter(metrics: Iterable[PrometheusMetric], labels: Mapping[str, str] | None = None) -> CollectorRegistry:
    """All of them, with one series each; `labels` are those of the exporter next to the metrics' own."""
    registry = CollectorRegistry()
    for metric in metrics:
        more = metric.model_copy(update={"labels": (*metric.labels, *(labels or {}))})
        names = [label for label in more.labels if label not in TARGET]
        made = registered(more, registry)
        if names:
            made.labels(**(dict.fromkeys(names, "0") | dict(labels or {})))
    return registry


NEVER_ASKED = "vllm:cache_config_info"
"""Its labels are the engine's settings."""

_FAMILY = re.compile(r"^# TYPE (\S+) (\S+)\n((?:(?!#).*\n)*)", re.MULTILINE)
_LABEL = re.compile(r'[{,](\w+)="([^"]*)"')


@dataclass
class Exported:
    """One metric."""

    kind: MetricKind
    labels: set[str] = field(default_factory=set)
    edges: set[float] = field(default_factory=set)


def exported(text: str) -> dict[str, Exported]:
    """By the names that were scraped; without the times at which counters began.

    Not Prometheus' own parser for Python: that one adds `_total` to counters which have none.
    """
    found: dict[str, Exported] = {}
    for name, kind, samples in _FAMILY.findall(re.sub(r"^# HELP.*\n", "", text, flags=re.MULTILINE)):
        if name.endswith("_created") or name == NEVER_ASKED or kind == "summary":  # of which nobody asks one
            continue
        labels = _LABEL.findall(samples)
        edges = {float(value) for label, value in labels if label == "le" and value != "+Inf"}
        found[name] = Exported(MetricKind(kind), {label for label, _ in labels} - {"le"}, edges)
    return found


def agree(found: Exported, metric: PrometheusMetric) -> bool:
    """Before Prometheus adds its labels; edges that depend on the model are taken as they come."""
    same = found.kind is metric.kind and found.labels == set(metric.labels) - set(TARGET)
    return same and (found.edges == set(metric.edges) or not metric.edges)
