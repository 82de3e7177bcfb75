"""What an autoscaler asks: of series that exist, by labels that they carry, in PromQL that Prometheus reads."""

from __future__ import annotations

from datetime import timedelta

import promql_parser
import pytest
from fakes.fleet import fleet_spec, release
from fakes.metrics.queries import metric_of

from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.capacity import Signal, signals
from rollouts.manifests.pod_spec import AutoscaleSpec
from slo.promql import series_of

WANTED = AutoscaleSpec(min_replicas=1, max_replicas=4, ttft=timedelta(milliseconds=500))
ALL = signals(Site(fleet=fleet_spec(), release=release()), WANTED)


def test_each_target_has_its_signal() -> None:
    assert {signal.name: signal.target for signal in ALL} == {"waiting": 4.0, "kv-cache": 0.75, "ttft": 0.5}
    only = AutoscaleSpec(min_replicas=1, max_replicas=4, waiting=None)
    assert [signal.name for signal in signals(Site(fleet=fleet_spec(), release=release()), only)] == ["kv-cache"]


@pytest.mark.parametrize("signal", ALL, ids=lambda signal: signal.name)
def test_a_signal_reads_series_that_engines_and_deliveries_export(signal: Signal) -> None:
    promql_parser.parse(signal.query)
    for series in series_of(signal.query):
        metric = metric_of(series)
        assert metric is not None, series
        assert {"service", "region"} <= set(metric.labels)
