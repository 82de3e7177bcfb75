"""The rule groups of all signals.

Prometheus evaluates the rules of a group one after the other, so that a rule may read what one before it has just
recorded. Rules read series of their service alone and put its name on what they record: those of several services
in one Prometheus neither count each other's requests nor record the same series.
"""

from __future__ import annotations

from slo.metrics import SERVICE
from slo.promql import of_service
from slo.rules.model import Rule, RuleGroup
from slo.signals.engines import engine_rules
from slo.signals.money import money_rules
from slo.signals.times import time_rules
from slo.signals.traffic import traffic_rules
from slo.spec import CostSpec, CountedBy


def signal_groups(*, service: str, counted_by: CountedBy, cost: CostSpec | None) -> tuple[RuleGroup, ...]:
    """All of one service, by region, role and version; those of money only when it is known what an engine costs."""
    groups = {
        "traffic": traffic_rules(counted_by),
        "times": time_rules(),
        "engines": engine_rules(),
        "money": money_rules(cost) if cost else {},
    }
    return tuple(
        RuleGroup(name=f"tidegate-{name}-{service}", rules=tuple(_rule(service, *rule) for rule in rules.items()))
        for name, rules in groups.items()
        if rules
    )


def _rule(service: str, name: str, query: str) -> Rule:
    # On what is read of no series, too: a budget is somebody's.
    return Rule(record=f"tidegate:{name}", expr=of_service(query, service), labels={SERVICE: service})
