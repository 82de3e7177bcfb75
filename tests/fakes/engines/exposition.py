"""`/metrics` without engines and GPUs: what they export, served as vLLM does, and read again.

Metric by metric as our inventory says it; histograms are native where they are served as protobuf.
"""

from __future__ import annotations

import collections
import math
import re
import struct
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gates.evidence.batch import LatencyMetric
from gates.evidence.names import PROCESS_START, of_this_machine
from slo.metrics import HTTP_REQUESTS, KV_CACHE_USAGE, TARGET, TIME_PER_OUTPUT_TOKEN, MetricKind, PrometheusMetric
from slo.spec import LATENCIES

QUICK, SLOW = 0.005, 100.0
"""Seconds, below and above every threshold."""


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


EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
SCHEMA = 5
"""32 buckets for each doubling: finer than the grid of the gates."""
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"


class EngineMetrics:
    """What an engine observed, as native histograms."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new process at the old address."""
        self.started = time.time()
        self.times: dict[LatencyMetric, list[float]] = {metric: [] for metric in LatencyMetric}

    def observe(self, ttft: float, itl: float, e2e: float) -> None:
        for metric, seconds in zip(LatencyMetric, (ttft, itl, e2e), strict=True):
            self.times[metric].append(seconds)

    def protobuf(self) -> bytes:
        start = _family(PROCESS_START, 1, _message(2, _double(1, self.started)))
        named = of_this_machine().times
        return b"".join([start, *(_family(one.metric, 4, _histogram(self.times[m])) for m, (one, _) in named.items())])


def _histogram(times: Sequence[float]) -> bytes:
    """io.prometheus.client.Histogram with one span over everything from the lowest bucket to the highest."""
    filled = collections.Counter(math.ceil(math.log2(seconds) * 2**SCHEMA) for seconds in times)
    fields = [_integer(1, len(times)), _double(2, sum(times)), _integer(5, _zigzag(SCHEMA)), _double(6, 1e-9)]
    if filled:
        low, high = min(filled), max(filled)
        # A bucket's index counts from the one that ends at 1 second, which is number 0.
        fields.append(_message(12, _integer(1, _zigzag(low)) + _integer(2, high - low + 1)))
        counts = [filled[index] for index in range(low, high + 1)]
        fields += [_integer(13, _zigzag(now - before)) for before, now in zip([0, *counts], counts, strict=False)]
    # Native and classic at once, as programs in transition do.
    below = sorted(times)
    fields += [_message(3, _integer(1, bisect_left(below, edge + 1e-12)) + _double(2, edge)) for edge in EDGES]
    return _message(7, b"".join(fields))


def _family(name: str, kind: int, metric: bytes) -> bytes:
    label = _message(1, _text(1, "model_name") + _text(2, "m"))
    family = _text(1, name) + _integer(3, kind) + _message(4, label + metric)
    return _varint(len(family)) + family


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


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
