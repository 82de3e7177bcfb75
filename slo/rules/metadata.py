"""Records what an SLO promises and how much of its error budget is left; dashboards read nothing else."""

from __future__ import annotations

from datetime import timedelta

from slo.model import Slo, SloGroup
from slo.rules.conventions import (
    BUDGET_REMAINING,
    CURRENT_BURN_RATE,
    ERROR_BUDGET_RATIO,
    ID,
    INFO,
    MODE,
    OBJECTIVE,
    OBJECTIVE_RATIO,
    PERIOD_BURN_RATE,
    PERIOD_DAYS,
    SERVICE,
    SLO,
    SLOTH_VERSION,
    SPEC,
    VERSION,
    identity,
    number,
    selector,
    sli_error,
)
from slo.rules.model import Rule
from slo.windows.model import Windows


def metadata_rules(slo: Slo, group: SloGroup, windows: Windows) -> tuple[Rule, ...]:
    """Objective, budget, period, both burn rates, what is left, and where the SLO came from."""
    objective = number(slo.objective / 100)
    expressions = {
        OBJECTIVE_RATIO: f"vector({objective})",
        ERROR_BUDGET_RATIO: f"vector(1-{objective})",
        PERIOD_DAYS: f"vector({number(windows.period / timedelta(days=1))})",
        CURRENT_BURN_RATE: _burn_rate(slo, windows.page.quick.short),
        PERIOD_BURN_RATE: _burn_rate(slo, windows.period),
        BUDGET_REMAINING: f"1 - {PERIOD_BURN_RATE}{selector(identity(slo))}",
    }
    labels = identity(slo) | dict(slo.labels)
    source = {VERSION: SLOTH_VERSION, MODE: group.mode, SPEC: group.spec, OBJECTIVE: number(slo.objective)}
    rules = [Rule(record=name, expr=expression, labels=labels) for name, expression in expressions.items()]
    return (*rules, Rule(record=INFO, expr="vector(1)", labels=labels | source))


def _burn_rate(slo: Slo, window: timedelta) -> str:
    """Times the speed that would spend the whole budget exactly in the period."""
    mine = selector(identity(slo))
    return f"{sli_error(window)}{mine}\n/ on({ID}, {SLO}, {SERVICE}) group_left\n{ERROR_BUDGET_RATIO}{mine}\n"
