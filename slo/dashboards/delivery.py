"""What the delivery does now: weights, what its gates say, and the canary measured by stable."""

from __future__ import annotations

from slo.dashboards.conventions import GREEN, IDLE, IN_REGION, RED, SEEN, YELLOW, too_much
from slo.dashboards.model import Kind, Needs, Panel, Query, Row, State

OUTCOMES = {
    "pass": State(word="pass", colour=GREEN),
    "running": State(word="running", colour=IDLE),
    "inconclusive": State(word="inconclusive", colour=YELLOW),
    "error": State(word="error", colour="purple"),
    "fail": State(word="fail", colour=RED),
}
"""From best to worst, as gates have them."""


def _outcome() -> str:
    """A series for each gate: the place of its outcome in the order from best to worst."""
    present = (
        f'tidegate_gate_outcome{{outcome="{outcome}", {SEEN}}} * {place}' for place, outcome in enumerate(OUTCOMES)
    )
    return f"sum by (region, version, stage, gate) ({' or '.join(present)})"


def _beside_stable(signal: str, operator: str) -> str:
    """The canary's value, and stable's of the same region, whatever version that is."""
    canary = f'sum by (region, version) ({signal}{{role="canary", {SEEN}}})'
    stable = f'sum by (region) ({signal}{{role="stable", {IN_REGION}}})'
    return f"{canary} {operator} on (region) group_left () {stable}"


DELIVERY = Row(
    title="Delivery: canary against stable",
    panels=(
        Panel(
            title="Weights",
            kind=Kind.LINES,
            question="How much of a region's traffic does each version get?",
            action="Trouble that began at a step up came with it: `tidegate rollback` gives all traffic to stable.",
            queries=(
                Query(
                    expr=f"tidegate_delivery_weight_percent{{{SEEN}}}",
                    legend="version {{version}} · {{region}}",
                    needs=Needs.DELIVERY,
                ),
            ),
            width=8,
            height=8,
            unit="percent",
            low=0,
            high=100,
            stepped=True,
            nothing="no delivery",
        ),
        Panel(
            title="What the gates say",
            kind=Kind.STATES,
            question="Does a gate already know what you see?",
            action="Fail: the delivery takes itself back; watch the weights. Error: `tidegate status` says why.",
            queries=(Query(expr=_outcome(), legend="{{gate}} · {{stage}} · {{region}}", needs=Needs.DELIVERY),),
            width=16,
            height=8,
            states={float(place): state for place, state in enumerate(OUTCOMES.values())},
            nothing="no gate is asked",
        ),
        Panel(
            title="Canary's latency in times of stable's, p95",
            kind=Kind.LINES,
            question="Is the canary slower than stable in the same region at the same time?",
            action="1 is alike. Above it everywhere: the version is slower. In one region only: look at its engines.",
            queries=tuple(
                Query(
                    expr=_beside_stable(f"tidegate:{signal}_seconds:p95_1m", "/"),
                    legend=f"canary {{{{version}}}} · {words} · {{{{region}}}}",
                    needs=Needs.DELIVERY,
                )
                for signal, words in (("ttft", "first token"), ("itl", "between tokens"), ("e2e", "whole answer"))
            ),
            width=12,
            height=8,
            unit="suffix:×",
            low=0,
            steps=too_much(1.5, far=2),
            nothing="no canary",
        ),
        Panel(
            title="Canary's share of failed requests less stable's",
            kind=Kind.LINES,
            question="Does the canary fail users whom stable would have served?",
            action="Above 0 for more than a few requests: take it back; no canary has to be finished tonight.",
            queries=(
                Query(
                    expr=_beside_stable("tidegate:error_ratio:rate1m", "-"),
                    legend="canary {{version}} · {{region}}",
                    needs=Needs.DELIVERY,
                ),
            ),
            width=12,
            height=8,
            unit="percentunit",
            nothing="no canary",
        ),
    ),
)
