"""What there is to ask Prometheus for: every metric of engines, proxies, GPUs and tidegate itself, as it is scraped.

Queries of SLOs, recording rules and dashboards are checked against it, so that a name that nobody exports is
found before an empty panel is.
"""

from __future__ import annotations

from slo.metrics.exporters import DCGM, ENVOY, OF_STARTS, TIDEGATE
from slo.metrics.model import SERVICE, TARGET, MetricKind, PrometheusMetric
from slo.metrics.vllm import VLLM

INVENTORY = {metric.name: metric for source in (VLLM, OF_STARTS, ENVOY, DCGM, TIDEGATE) for metric in source}
"""By name; a histogram by its base name."""

_BY_SERIES = {series: metric for metric in INVENTORY.values() for series in metric.series}


def metric_of(series: str) -> PrometheusMetric | None:
    """The metric that exports a series: of `x_bucket`, the histogram `x`; None when nobody does."""
    return _BY_SERIES.get(series)


__all__ = ["INVENTORY", "SERVICE", "TARGET", "MetricKind", "PrometheusMetric", "metric_of"]
