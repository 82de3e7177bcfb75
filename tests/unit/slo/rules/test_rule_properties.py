"""Whatever SLO is valid: its rules are PromQL, are named once, and say whose they are."""

from __future__ import annotations

from collections import Counter

import promql_parser as promql
from fakes.metrics.slos import slo_groups, slo_specs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slo.catalogue import group_of
from slo.model import SloGroup
from slo.rules import rules_for
from slo.spec import CountedBy, SloSpec
from slo.windows import windows_for


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(slo_groups())
def test_every_rule_is_promql_and_says_whose_it_is(group: SloGroup) -> None:
    groups = rules_for(group, windows_for(group.slos[0].window))
    rules = [rule for found in groups for rule in found.rules]
    for rule in rules:
        promql.parse(rule.expr)
    recorded = [rule for rule in rules if rule.record]
    assert {rule.labels["sloth_id"] for rule in recorded} == {slo.id for slo in group.slos}
    assert len({found.name for found in groups}) == len(groups)
    assert set(Counter((rule.record, rule.labels["sloth_id"]) for rule in recorded).values()) == {1}
    assert len(rules) - len(recorded) == sum(bool(slo.page) + bool(slo.ticket) for slo in group.slos)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(slo_specs(), st.sampled_from(CountedBy))
def test_whatever_a_delivery_promises_has_rules_that_are_promql(spec: SloSpec, counted_by: CountedBy) -> None:
    assert list(spec.all_contradictions()) == []
    group = group_of([spec], service="support-llm", counted_by=counted_by)
    for found in rules_for(group, windows_for(spec.window)):
        for rule in found.rules:
            promql.parse(rule.expr)
