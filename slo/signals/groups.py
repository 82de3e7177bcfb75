"""The rule groups of all signals.

Prometheus evaluates the rules of a group one after the other, so that a rule may read what one before it has just
recorded.
"""

from __future__ import annotations

from slo.promql import pretty
from slo.rules.model import Rule, RuleGroup
from slo.signals.engines import engine_rules
from slo.signals.money import money_rules
from slo.signals.times import time_rules
from slo.signals.traffic import traffic_rules
from slo.spec import CostSpec, CountedBy


def signal_groups(*, counted_by: CountedBy, cost: CostSpec | None) -> tuple[RuleGroup, ...]:
    """All of them, by region, role and version; those of money only when it is known what an engine costs."""
    groups = {
        "traffic": traffic_rules(counted_by),
        "times": time_rules(),
        "engines": engine_rules(),
        "money": money_rules(cost) if cost else {},
    }
    return tuple(
        RuleGroup(name=f"tidegate-{name}", rules=tuple(_rule(*rule) for rule in rules.items()))
        for name, rules in groups.items()
        if rules
    )


def _rule(name: str, query: str) -> Rule:
    return Rule(record=f"tidegate:{name}", expr=pretty(query))
