"""L3, for who pays: what tokens cost, what of the engines is used, and how much more a region can take."""

from __future__ import annotations

from collections.abc import Iterator

from slo.dashboards.conventions import ARM_LEGEND, IN_REGION, OF_USERS, SEEN, too_little, too_much
from slo.dashboards.model import Dashboard, Kind, Needs, Panel, Query, Row
from slo.dashboards.on_call import GPU_BAND
from slo.dashboards.promises import Promises
from slo.spec import CostSpec

_HOURS_OF_A_MONTH = 720
"""A month has 30 days, as the budget's."""
_HOURLY = f"sum by (region) (tidegate:cost_per_hour:sum{{{IN_REGION}}})"
"""Unused hours cost as much as used ones: every engine is in it, whatever its role."""
_TOKENS = f"sum by (region) (tidegate:generation_tokens:rate1m{{{IN_REGION}}})"


def cost(promises: Promises, price: CostSpec | None, uid: str) -> Dashboard:
    """Without a price of engines there are no panels of money: a guess would be believed."""
    return Dashboard(
        uid=uid,
        title=f"{promises.service} · L3 cost and capacity",
        description="What tokens cost, how much of what is paid for is used, and how much more each region can take.",
        service=promises.service,
        since="24h",
        rows=(*([Row(title="Money", panels=tuple(_money(price)))] if price else []), _USE, _ENGINES, _HEADROOM),
    )


def _money(price: CostSpec) -> Iterator[Panel]:
    unit = f"currency:{price.currency} "
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
    yield from _months(price.budget_per_month, unit)


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
                    expr=(
                        f"sum(avg_over_time(tidegate:cost_per_hour:sum{{{IN_REGION}}}[1d]))"
                        " / sum(tidegate:cost_budget_per_hour:sum)"
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


_PROVISIONED = f"sum by (region) (tidegate:engines:count{{{SEEN}}})"

_USED = f"sum by (region) (tidegate:engines:count{{{SEEN}}} * tidegate:gpu_utilisation:avg{{{SEEN}}}) / 100"

_USE = Row(
    title="Used against provisioned",
    panels=(
        Panel(
            title="Engines provisioned, and engines' worth of GPU that is used",
            kind=Kind.LINES,
            question="How many engines are paid for, and how many would do if each were wholly busy?",
            action="Used is far below provisioned for days: take an engine away, but keep one for a failure.",
            queries=(
                Query(expr=_PROVISIONED, legend="provisioned · {{region}}"),
                Query(
                    expr=_USED,
                    legend="used · {{region}}",
                    needs=Needs.GPU,
                ),
            ),
            width=12,
            height=8,
            decimals=1,
            low=0,
        ),
        Panel(
            title="GPU utilisation",
            kind=Kind.LINES,
            question="Is each version in the band of 65-75 %?",
            action="Below the band: paid for and idle. Above it: no room for a peak, or for a region that is gone.",
            queries=(Query(expr=f"tidegate:gpu_utilisation:avg{{{SEEN}}}", legend=ARM_LEGEND, needs=Needs.GPU),),
            width=6,
            height=8,
            unit="percent",
            low=0,
            high=100,
            steps=GPU_BAND,
            nothing="no GPU",
        ),
        Panel(
            title="Tokens a second of an engine",
            kind=Kind.LINES,
            question="How much does each engine give, prompts and answers together?",
            action="Canary below stable at the same load: its engine image or its arguments are worse; see its build.",
            queries=(
                Query(
                    expr=(
                        f"(tidegate:generation_tokens:rate1m{{{SEEN}}} + tidegate:prompt_tokens:rate1m{{{SEEN}}})"
                        f" / tidegate:engines:count{{{SEEN}}}"
                    ),
                    legend=ARM_LEGEND,
                ),
            ),
            width=6,
            height=8,
            low=0,
        ),
    ),
)

_ENGINES = Row(
    title="What makes tokens cheap",
    panels=(
        Panel(
            title="Speculative acceptance",
            kind=Kind.LINES,
            question="What share of the drafted tokens does the model accept?",
            action="Below half: drafting costs more than it saves; draft fewer tokens or train a new draft.",
            queries=(
                Query(
                    expr=f"tidegate:spec_decode_acceptance:rate5m{{{SEEN}}}",
                    legend=ARM_LEGEND,
                    needs=Needs.SPECULATION,
                ),
            ),
            width=12,
            height=8,
            unit="percentunit",
            low=0,
            high=1,
            steps=too_little(0.5, near=0.6),
            nothing="no speculative decoding",
        ),
        Panel(
            title="KV cache hit rate",
            kind=Kind.LINES,
            question="What share of prompt tokens was computed before and is taken from the cache?",
            action="Falls after a delivery: a new template breaks common prefixes. With load: the cache is too small.",
            queries=(Query(expr=f"tidegate:prefix_cache_hit_ratio:rate5m{{{SEEN}}}", legend=ARM_LEGEND),),
            width=12,
            height=8,
            unit="percentunit",
            low=0,
            high=1,
        ),
    ),
)

_HEADROOM = Row(
    title="Headroom",
    panels=(
        Panel(
            title="Headroom of each region",
            kind=Kind.BARS,
            question="How much is free in each region, of its fullest KV cache and of its GPUs?",
            action="Below a fifth: it cannot take over from another region; add an engine before you need it.",
            queries=(
                Query(
                    expr=f"1 - max by (region) (tidegate:kv_cache_usage:max{{{SEEN}}})",
                    legend="KV cache · {{region}}",
                ),
                Query(
                    expr=f"1 - avg by (region) (tidegate:gpu_utilisation:avg{{{SEEN}}}) / 100",
                    legend="GPU · {{region}}",
                    needs=Needs.GPU,
                ),
            ),
            width=12,
            height=8,
            unit="percentunit",
            low=0,
            high=1,
            steps=too_little(0.2, near=0.35),
        ),
        Panel(
            title="Requests in work for each engine",
            kind=Kind.LINES,
            question="How many requests share an engine of the region, and how many more wait for one?",
            action="Waiting above 0 for minutes: there is no headroom left, whatever the other panel says.",
            queries=(
                Query(
                    expr=f"sum by (region) (tidegate:running:sum{{{SEEN}}}) / {_PROVISIONED}",
                    legend="in work · {{region}}",
                ),
                Query(
                    expr=f"sum by (region) (tidegate:queue_depth:sum{{{SEEN}}}) / {_PROVISIONED}",
                    legend="waiting · {{region}}",
                ),
            ),
            width=12,
            height=8,
            decimals=1,
            low=0,
        ),
    ),
)
