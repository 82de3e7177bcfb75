"""What engines and GPUs export, metric by metric as our inventory says it, without engines and GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slo.metrics import TARGET, Kind, Metric
from slo.metrics.vllm import HTTP_REQUESTS, KV_CACHE_USAGE, TIME_PER_OUTPUT_TOKEN
from slo.spec import LATENCIES

QUICK, SLOW = 0.005, 100.0
"""Seconds, below and above every threshold."""


def registered(metric: Metric, registry: CollectorRegistry) -> Any:
    """The metric, with the labels that its exporter sets itself."""
    labels = [label for label in metric.labels if label not in TARGET]
    if metric.kind is Kind.COUNTER and metric.name.endswith("_total"):  # which DCGM's exporter does not add
        return Counter(metric.name.removesuffix("_total"), "-", labels, registry=registry)
    if metric.kind is Kind.HISTOGRAM:
        return Histogram(metric.name, "-", labels, registry=registry, buckets=metric.edges or (1.0, 10.0))
    return Gauge(metric.name, "-", labels, registry=registry)


def exporter(metrics: Iterable[Metric], labels: Mapping[str, str] | None = None) -> CollectorRegistry:
    """All of them, with one series each; `labels` are those of the exporter beside the metrics' own."""
    registry = CollectorRegistry()
    for metric in metrics:
        more = metric.model_copy(update={"labels": (*metric.labels, *(labels or {}))})
        names = [label for label in more.labels if label not in TARGET]
        made = registered(more, registry)
        if names:
            made.labels(**(dict.fromkeys(names, "0") | dict(labels or {})))
    return registry


class Engine:
    """Counts answers, of which a share is as bad as an answer can be: late, slow and an error."""

    def __init__(self, bad: float) -> None:
        self.registry = CollectorRegistry()
        self._bad = bad
        self._answers = registered(HTTP_REQUESTS, self.registry)
        self._cache = registered(KV_CACHE_USAGE, self.registry)
        self._times = [registered(each, self.registry) for each in (*LATENCIES.values(), TIME_PER_OUTPUT_TOKEN)]

    def answer(self, requests: int) -> None:
        """So many, the bad ones among them."""
        bad = round(requests * self._bad)
        engine = {"engine": "0", "model_name": "m"}
        for status, seconds, count in (("2xx", QUICK, requests - bad), ("5xx", SLOW, bad)):
            if count:
                self._answers.labels(handler="/v1/chat/completions", method="POST", status=status).inc(count)
            for times in self._times:
                for _ in range(count):
                    times.labels(**engine).observe(seconds)
        self._cache.labels(**engine).set(0.99 if self._bad else 0.3)

    def series(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Names, labels and values as they are scraped now; without `_created`, which is dropped then."""
        for family in self.registry.collect():
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    yield sample.name, sample.labels, sample.value
