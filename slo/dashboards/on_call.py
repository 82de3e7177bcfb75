"""L1, for who is woken at night: which region, which version, since when, and what the delivery is doing about it."""

from __future__ import annotations

from slo.dashboards.conventions import ARM_LEGEND, GREEN, IDLE, OF_SLOS, OF_USERS, RED, SEEN, YELLOW, too_much
from slo.dashboards.delivery import DELIVERY
from slo.dashboards.first_screen import first_screen
from slo.dashboards.latency import latency
from slo.dashboards.model import Dashboard, Kind, Needs, Panel, Query, Row, Step
from slo.dashboards.promises import Promises


def on_call(promises: Promises, uid: str) -> Dashboard:
    """Read from top to bottom; the first screen suffices to act."""
    return Dashboard(
        uid=uid,
        title=f"{promises.service} · L1 on-call",
        description="Which region and which version is bad, since when, and what the delivery does about it.",
        service=promises.service,
        since="1h",
        rows=(
            first_screen(promises),
            _requests(promises),
            latency(promises),
            DELIVERY,
            _budget(),
            _engines(promises),
        ),
    )


def _requests(promises: Promises) -> Row:
    limit = promises.bad_share
    asked = Panel(
        title="Requests a second",
        kind=Kind.LINES,
        question="How many users does each version serve?",
        action="A step down without a step of the delivery: users do not arrive, or are turned away before the proxy.",
        queries=(Query(expr=f"tidegate:requests:rate1m{{{OF_USERS}}}", legend=ARM_LEGEND),),
        width=8,
        height=8,
        unit="reqps",
        low=0,
    )
    failed = Panel(
        title="Share of requests that fail",
        kind=Kind.LINES,
        question="How many are failed by us: 5xx, timeouts, answers that were cut off?",
        action="Above the line the error budget shrinks. Compare canary with stable of the same region before you act.",
        queries=(Query(expr=f"tidegate:error_ratio:rate1m{{{OF_USERS}}}", legend=ARM_LEGEND),),
        width=8,
        height=8,
        unit="percentunit",
        low=0,
        steps=too_much(limit) if limit else (),
    )
    refused = Panel(
        title="Requests refused a second (4xx)",
        kind=Kind.LINES,
        question="How many are turned away as the user's fault? They spend no error budget.",
        action="Only the canary refuses: it reads requests differently (context length, tools, template); hold it.",
        queries=(Query(expr=f"tidegate:refusals:rate1m{{{OF_USERS}}}", legend=ARM_LEGEND),),
        width=8,
        height=8,
        unit="reqps",
        low=0,
    )
    return Row(title="Requests", panels=(asked, failed, refused))


def _budget() -> Row:
    return Row(
        title="Error budget",
        panels=(
            Panel(
                title="Burn rate of each SLO",
                kind=Kind.LINES,
                question="How many times too fast is each budget spent?",
                action="Above 1× it will not last. Over 30 days, a page comes at 14.4× for an hour or at 6× for six.",
                queries=(Query(expr=f"slo:current_burn_rate:ratio{{{OF_SLOS}}}", legend="{{sloth_slo}} · {{region}}"),),
                width=12,
                height=8,
                unit="suffix:×",
                low=0,
                steps=(Step(colour=GREEN), Step(colour=YELLOW, since=1), Step(colour=RED, since=6)),
            ),
            Panel(
                title="Error budget that is left",
                kind=Kind.BARS,
                question="What is left of each budget in the SLO's window?",
                action="Below a quarter: no more deliveries by hand in this region. Below zero: the promise is broken.",
                queries=(
                    Query(
                        expr=f"slo:period_error_budget_remaining:ratio{{{OF_SLOS}}}",
                        legend="{{sloth_slo}} · {{region}}",
                    ),
                ),
                width=12,
                height=8,
                unit="percentunit",
                low=0,
                high=1,
                steps=(Step(colour=RED), Step(colour=YELLOW, since=0.25), Step(colour=GREEN, since=0.5)),
            ),
        ),
    )


def _engines(promises: Promises) -> Row:
    full = promises.kv_cache or 0.9
    return Row(
        title="Engines",
        panels=(
            Panel(
                title="GPU utilisation",
                kind=Kind.DIAL,
                question="Is each region in the band of 65-75 %, where an engine is busy and still takes a peak?",
                action="Above 75 %: add engines before queues grow. Below 65 %: there is more than is used; see L3.",
                queries=(
                    Query(
                        expr=f"avg by (region) (tidegate:gpu_utilisation:avg{{{SEEN}}})",
                        legend="{{region}}",
                        needs=Needs.GPU,
                    ),
                ),
                width=6,
                height=8,
                unit="percent",
                low=0,
                high=100,
                steps=GPU_BAND,
                nothing="no GPU",
            ),
            Panel(
                title="Requests that wait",
                kind=Kind.LINES,
                question="How deep is the queue of each version's engines?",
                action="Grows on both arms: the region is short of engines. On the canary alone: it is slower.",
                queries=(Query(expr=f"tidegate:queue_depth:sum{{{SEEN}}}", legend=ARM_LEGEND),),
                width=6,
                height=8,
                low=0,
            ),
            Panel(
                title="Preemptions a second",
                kind=Kind.LINES,
                question="Are answers interrupted because the KV cache is full?",
                action="Any at all: give engines fewer or shorter requests, or add some; tokens come in bursts.",
                queries=(Query(expr=f"tidegate:preemptions:rate1m{{{SEEN}}}", legend=ARM_LEGEND),),
                width=6,
                height=8,
                unit="ops",
                low=0,
            ),
            Panel(
                title="KV cache in use",
                kind=Kind.LINES,
                question="How full is the fullest engine of each version?",
                action="Near the line requests wait, beyond it they are preempted: lower its weight or add engines.",
                queries=(Query(expr=f"tidegate:kv_cache_usage:max{{{SEEN}}}", legend=ARM_LEGEND),),
                width=6,
                height=8,
                unit="percentunit",
                low=0,
                high=1,
                steps=too_much(full),
            ),
        ),
    )


GPU_BAND = (
    Step(colour=IDLE),
    Step(colour=GREEN, since=65),
    Step(colour=YELLOW, since=75),
    Step(colour=RED, since=90),
)
"""Percent. Below: paid for and idle. Above: no room for a peak, or for a region that is gone."""
