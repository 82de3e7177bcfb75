"""The same SLOs, written in any format and read back, are the same SLOs and make the same rules."""

from __future__ import annotations

from fakes.metrics.slos import in_format, slo_groups
from hypothesis import given, settings

from slo.formats import read, write_kubernetes, write_openslo, write_prometheus
from slo.formats.openslo import error_ratio
from slo.model import EventSli, RawSli, Slo, SloGroup
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


@settings(deadline=None, max_examples=15)
@given(slo_groups())
def test_openslo_says_what_is_promised_and_no_alerts(group: SloGroup) -> None:
    counted = [slo for slo in group.slos if isinstance(slo.sli, EventSli)]
    if not counted:
        return
    text = write_openslo(group.model_copy(update={"slos": tuple(counted)}))
    back = [slo for found in read(text, file="slos.yaml") for slo in found.slos]
    assert [slo.service for slo in back] == [slo.service for slo in counted]
    assert [slo.name for slo in back] == [f"{slo.name}-0" for slo in counted]
    assert [round(slo.objective, 6) for slo in back] == [slo.objective for slo in counted]
    assert [slo.sli for slo in back] == [good_over_total(slo) for slo in counted]
    assert {(slo.page, slo.ticket) for slo in back} == {(None, None)}


@settings(deadline=None, max_examples=10)
@given(slo_groups())
def test_openslo_comes_back_the_same_from_the_second_time_on(group: SloGroup) -> None:
    counted = tuple(slo for slo in group.slos if isinstance(slo.sli, EventSli))
    if not counted:
        return
    once = read(write_openslo(group.model_copy(update={"slos": counted})), file="slos.yaml")
    again = [found for one in once for found in read(write_openslo(one), file="slos.yaml")]
    assert [one.slos[0].sli for one in again] == [one.slos[0].sli for one in once]
    assert [one.slos[0].id for one in again] == [one.slos[0].id for one in once]


def good_over_total(slo: Slo) -> RawSli:
    assert isinstance(slo.sli, EventSli)
    good = f"(\n{slo.sli.total_query}\n)\n-\n(\n{slo.sli.error_query}\n)"
    return RawSli(error_ratio_query=error_ratio(good, slo.sli.total_query))
