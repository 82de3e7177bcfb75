"""The same SLOs, written in either of Sloth's formats and read back, are the same SLOs and make the same rules."""

from __future__ import annotations

from fakes.metrics.slos import in_format, slo_groups
from hypothesis import given, settings

from slo.formats import read, write_kubernetes, write_prometheus
from slo.model import SloGroup
from slo.rules import rules_for
from slo.windows import windows_for


def read_one(text: str) -> SloGroup:
    (group,) = read(text, file="slos.yaml")
    return group


@settings(deadline=None, max_examples=15)
@given(slo_groups())
def test_prometheus_v1_says_all(group: SloGroup) -> None:
    assert read_one(write_prometheus(group)) == group


@settings(deadline=None, max_examples=15)
@given(slo_groups())
def test_the_kubernetes_object_says_all(group: SloGroup) -> None:
    assert read_one(write_kubernetes(group)) == in_format(group, "sloth.slok.dev/v1")


@settings(deadline=None, max_examples=10)
@given(slo_groups())
def test_both_of_sloths_formats_make_the_same_rules(group: SloGroup) -> None:
    plain = read_one(write_prometheus(group))
    # Where an SLO was written is a label of its own; all else has to be equal.
    other = read_one(write_kubernetes(group)).model_copy(update={"mode": plain.mode, "spec": plain.spec})
    windows = windows_for(group.slos[0].window)
    assert rules_for(plain, windows) == rules_for(other, windows)
