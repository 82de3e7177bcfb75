"""Latency: a heat map of the time to first token that is cut at the SLO's line, and quantiles beside it.

Grafana draws no line across a heat map. The promise is an edge of a bucket, so there are two maps: what is beyond
the line, in red, stands on what is within it, in blue; where they meet is the line.
"""

from __future__ import annotations

from collections.abc import Sequence

from slo.dashboards.conventions import ARM_LEGEND, OF_USERS, too_much
from slo.dashboards.model import Colours, Kind, Panel, Query, Row
from slo.dashboards.promises import Promises
from slo.edges import edge_label
from slo.metrics.vllm import TTFT

_BUCKETS = "tidegate:ttft_seconds_bucket:rate1m"
_EDGES = [edge for edge in TTFT.edges if edge <= 40]
"""What takes longer is in the topmost cells."""


def latency(promises: Promises) -> Row:
    """Heat maps on the left, quantiles of the same answers on the right."""
    line = promises.ttft_seconds
    upper, *lower = [_heat_map()] if line is None else [_beyond(line), _within(line)]
    beside = 6 if lower else 12
    return Row(
        title="Latency",
        panels=(
            upper,
            _quantiles("Time to first token, p50 and p95", "ttft", line, (50, 95), size=(12, upper.height)),
            *lower,
            _quantiles("Time between tokens, p95", "itl", promises.itl_seconds, (95,), size=(beside, 7)),
            _quantiles("Whole answers, p95", "e2e", promises.e2e_seconds, (95,), size=(beside, 7)),
        ),
    )


def _heat_map() -> Panel:
    return _map("Time to first token", "How long do users wait?", _up_to(_EDGES, topmost=True), 8)


def _beyond(line: float) -> Panel:
    """Buckets are cumulative: what is within the line is taken off each of those beyond it."""
    within = f'sum({_BUCKETS}{{{OF_USERS}, le="{edge_label(line)}"}})'
    beyond = _up_to([edge for edge in _EDGES if edge > line], topmost=True)
    return _map(
        f"Time to first token: beyond the SLO's line of {line:g} s",
        "Who waits longer than was promised, and how long?",
        f"{beyond} - on () group_left () {within}",
        5,
    ).model_copy(update={"colours": Colours.REDS})


def _within(line: float) -> Panel:
    return _map(
        f"Time to first token: within the SLO's line of {line:g} s",
        "How near to the line are the others?",
        _up_to([edge for edge in TTFT.edges if edge <= line], topmost=False),
        7,
    )


def _up_to(edges: Sequence[float], *, topmost: bool) -> str:
    """Answers a second up to each edge; `topmost`: whatever their time, too."""
    names = "|".join([*(edge_label(edge).replace(".", "[.]") for edge in edges), *(["[+]Inf"] if topmost else [])])
    return f'sum by (le) ({_BUCKETS}{{{OF_USERS}, le=~"{names}"}})'


def _map(title: str, question: str, expr: str, height: int) -> Panel:
    return Panel(
        title=title,
        kind=Kind.HEAT,
        question=question,
        action=(
            "A second band that rises: choose versions and regions above until it is alone. Everything rises with the "
            "queue: the region is short of engines."
        ),
        queries=(Query(expr=expr, legend="{{le}}", heat=True),),
        width=12,
        height=height,
        unit="s",
    )


def _quantiles(title: str, signal: str, line: float | None, percents: Sequence[int], *, size: tuple[int, int]) -> Panel:
    many = len(percents) > 1
    return Panel(
        title=title,
        kind=Kind.LINES,
        question="How long does it take on each version?" + (f" The line is the SLO's: {line:g} s." if line else ""),
        action="Canary above stable of the same region: it is slower; the latency gate decides whether by too much.",
        queries=tuple(
            Query(
                expr=f"tidegate:{signal}_seconds:p{percent}_1m{{{OF_USERS}}}",
                legend=f"{ARM_LEGEND} · p{percent}" if many else ARM_LEGEND,
            )
            for percent in percents
        ),
        width=size[0],
        height=size[1],
        unit="s",
        low=0,
        steps=too_much(line) if line else (),
    )
