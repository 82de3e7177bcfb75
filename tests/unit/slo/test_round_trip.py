"""The same SLOs, written in Sloth's format and read back, are the same SLOs."""

from __future__ import annotations

from fakes.metrics.queries import read
from fakes.metrics.slos import slo_groups
from hypothesis import given, settings

from slo.formats.sloth import write_prometheus
from slo.model import SloGroup


@settings(deadline=None, max_examples=15)
@given(slo_groups())
def test_prometheus_v1_says_all(group: SloGroup) -> None:
    assert read(write_prometheus(group), file="slos.yaml") == [group]
