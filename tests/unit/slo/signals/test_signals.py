"""Which signals are recorded, and of what."""

from __future__ import annotations

import promql_parser as promql
import pytest
from fakes.metrics.queries import metric_of

from slo.metrics import SERVICE
from slo.rules import Rule
from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy

COST = CostSpec(per_engine_hour=2.5, budget_per_month=4000)


def rules(counted_by: CountedBy = CountedBy.PROXY, cost: CostSpec | None = COST) -> dict[str, Rule]:
    groups = signal_groups(service="chat", counted_by=counted_by, cost=cost)
    return {rule.record.removeprefix("tidegate:"): rule for group in groups for rule in group.rules}


def test_what_nobody_counts_is_not_recorded() -> None:
    everything = rules().keys()
    assert everything - rules(CountedBy.ENGINE).keys() == set()
    money = {"cost_per_hour:sum", "cost_per_1k_tokens:rate1m", "cost_budget_per_hour:sum"}
    assert everything - rules(cost=None).keys() == money
    assert everything - rules(cost=CostSpec(per_engine_hour=1)).keys() == {"cost_budget_per_hour:sum"}


@pytest.mark.parametrize("counted_by", CountedBy)
def test_every_rule_reads_what_is_exported_or_was_recorded_before_it_of_its_service_alone(
    counted_by: CountedBy,
) -> None:
    recorded: set[str] = set()

    def known(node: promql.Expr) -> promql.Expr:
        if isinstance(node, promql.VectorSelector):
            assert node.name in recorded or metric_of(node.name), node.name
            assert [matcher.value for matcher in node.matchers.matchers if matcher.name == SERVICE] == ["chat"]
        return node

    for name, rule in rules(counted_by).items():
        promql.transform(promql.parse(rule.expr), None, known)
        recorded.add(f"tidegate:{name}")
