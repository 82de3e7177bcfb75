"""What tokens and engines cost, where it is known what an engine costs."""

from __future__ import annotations

from collections.abc import Iterator

from slo.dashboards.conventions import ARM_LEGEND, IN_REGION, OF_SERVICE, OF_USERS, too_much
from slo.dashboards.model import Kind, Panel, Query, Row
from slo.spec import CostSpec

_HOURS_OF_A_MONTH = 720
"""A month has 30 days, as the budget's."""
_HOURLY = f"sum by (region) (tidegate:cost_per_hour:sum{{{IN_REGION}}})"
"""Unused hours cost as much as used ones: every engine is in it, whatever its role."""
_TOKENS = f"sum by (region) (tidegate:generation_tokens:rate1m{{{IN_REGION}}})"


def money(price: CostSpec) -> Row:
    """Tokens first: what an answer costs says whether a month's bill is waste or success."""
    unit = f"currency:{price.currency} "
    return Row(title="Money", panels=(*_tokens(unit), *_months(price.budget_per_month, unit)))


def _tokens(unit: str) -> Iterator[Panel]:
    yield Panel(
        title="Cost of 1,000 generated tokens, by region",
        kind=Kind.LINES,
        question="What do a thousand tokens of answers cost in each region, all its engines together?",
        action="One region far above: its engines idle; take some away there. All rise: answers got shorter or slower.",
        queries=(Query(expr=f"{_HOURLY} / (3.6 * ({_TOKENS} > 0))", legend="{{region}}"),),
        width=12,
        height=8,
        unit=unit,
        decimals=4,
        low=0,
    )
    yield Panel(
        title="Cost of 1,000 generated tokens, by version",
        kind=Kind.LINES,
        question="What do they cost on each version's own engines?",
        action="A canary of little weight is dear by that alone: compare at 50 %. Dearer still: it is slower; see L1.",
        queries=(Query(expr=f"tidegate:cost_per_1k_tokens:rate1m{{{OF_USERS}}}", legend=ARM_LEGEND),),
        width=12,
        height=8,
        unit=unit,
        decimals=4,
        low=0,
    )


def _months(budget: float | None, unit: str) -> Iterator[Panel]:
    yield Panel(
        title="Burn against budget: a month at the present rate",
        kind=Kind.LINES,
        question="What would a month cost if it all stayed like this?" + (" The line is the budget." if budget else ""),
        action="Above the line: the canary's engines count, too; finish the delivery before you take others away.",
        queries=(
            Query(expr=f"{_HOURS_OF_A_MONTH} * sum(tidegate:cost_per_hour:sum{{{IN_REGION}}})", legend="all regions"),
            Query(expr=f"{_HOURS_OF_A_MONTH} * {_HOURLY}", legend="{{region}}"),
        ),
        width=16 if budget else 24,
        height=8,
        unit=unit,
        decimals=0,
        low=0,
        steps=too_much(budget, near=0.9) if budget else (),
    )
    if budget:
        yield Panel(
            title="Share of the budget",
            kind=Kind.DIAL,
            question="How much of the budget do the engines of the last day come to?",
            action="Above 100 %: the budget ends before the month does.",
            queries=(
                Query(
                    # Sums of the same evaluations: an engine of an hour costs an hour, not a day.
                    expr=(
                        f"sum(sum_over_time(tidegate:cost_per_hour:sum{{{IN_REGION}}}[1d]))"
                        f" / sum(sum_over_time(tidegate:cost_budget_per_hour:sum{{{OF_SERVICE}}}[1d]))"
                    ),
                    legend="of the budget",
                ),
            ),
            width=8,
            height=8,
            unit="percentunit",
            low=0,
            high=1.2,
            steps=too_much(0.9, far=1),
        )
