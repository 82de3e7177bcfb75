"""What engines cost, whether anybody asks them or not."""

from __future__ import annotations

from datetime import timedelta

from slo.rules.conventions import number
from slo.spec import CostSpec

MONTH = timedelta(days=30)
"""Over which a budget is meant."""


def money_rules(cost: CostSpec) -> dict[str, str]:
    """Queries by the name that they are recorded under, in the currency of `cost`."""
    rules = {
        "cost_per_hour:sum": f"tidegate:engines:count * {number(cost.per_engine_hour)}",
        # Of what is written, not of what is read: prompts are paid for with the answers.
        "cost_per_1k_tokens:rate1m": (
            "tidegate:cost_per_hour:sum / 3600 / ((tidegate:generation_tokens:rate1m > 0) / 1000)"
        ),
    }
    if cost.budget_per_month:
        rules["cost_budget_per_hour:sum"] = f"vector({number(cost.budget_per_month)}) / {number(_HOURS)}"
    return rules


_HOURS = MONTH / timedelta(hours=1)
