"""L3, for who pays: what tokens cost, what of the engines is used, and how much more a region can take."""

from __future__ import annotations

from slo.dashboards.conventions import ARM_LEGEND, SEEN, too_little
from slo.dashboards.model import Dashboard, Kind, Needs, Panel, Query, Row
from slo.dashboards.money import money
from slo.dashboards.on_call import GPU_BAND
from slo.dashboards.promises import Promises
from slo.spec import CostSpec


def cost(promises: Promises, price: CostSpec | None, uid: str) -> Dashboard:
    """Without a price of engines there are no panels of money: a guess would be believed."""
    return Dashboard(
        uid=uid,
        title=f"{promises.service} · L3 cost and capacity",
        description="What tokens cost, how much of what is paid for is used, and how much more each region can take.",
        service=promises.service,
        since="24h",
        rows=(*([money(price)] if price else []), _USE, _ENGINES, _HEADROOM),
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
            banded=True,
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
