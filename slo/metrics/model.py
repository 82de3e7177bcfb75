"""What a metric is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidegate.core.model import Value

SERVICE = "service"
"""The label that says whose a series is: the delivery's name. One Prometheus may see many deliveries."""

TARGET = ("instance", SERVICE, "region", "role", "version")
"""What Prometheus itself puts on every series of an engine, besides `job`, which is another one in each cluster."""


class MetricKind(StrEnum):
    """As the line `# TYPE` of an exposition says it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


_PARTS = {MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"), MetricKind.SUMMARY: ("_sum", "_count")}


class PrometheusMetric(Value):
    """One metric of one exporter."""

    name: str
    """Of a counter as it is scraped, with `_total` where it has that; of a histogram without `_bucket`."""
    kind: MetricKind
    labels: tuple[str, ...] = ()
    """All that its series have once they are scraped and relabelled; `le` of a histogram is left out."""
    edges: tuple[float, ...] = ()
    """Upper ends of a histogram's buckets, without +Inf."""
    only_with: str = ""
    """What must be there for it to be exported, such as a GPU; empty when it always is."""

    @property
    def series(self) -> Mapping[str, tuple[str, ...]]:
        """The names of its series, each with its labels."""
        parts = _PARTS.get(self.kind, ("",))
        return {self.name + part: (*self.labels, "le") if part == "_bucket" else self.labels for part in parts}
