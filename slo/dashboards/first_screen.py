"""The first screen of the on-call dashboard: which region and which version is bad, in five seconds."""

from __future__ import annotations

from slo.dashboards.conventions import (
    ARM,
    ARM_LEGEND,
    FIRING,
    GREEN,
    GREY,
    IN_REGION,
    OF_SLOS,
    OF_USERS,
    RED,
    YELLOW,
    too_much,
)
from slo.dashboards.model import Kind, Needs, Panel, Query, Row, State, Step
from slo.dashboards.promises import Promises

SILENT = -1
"""Stands for a region in which nobody asks, or of which nothing is heard any more."""

_SUSTAINABLE, _PAGING = 1.0, 6.0
"""Burn rates: the budget lasts just as long as it must; the slower of the two that page, over 30 days."""

HEALTH_STEPS = (
    Step(colour=GREY),
    Step(colour=GREEN, since=0),
    Step(colour=YELLOW, since=_SUSTAINABLE),
    Step(colour=RED, since=_PAGING),
)


def first_screen(promises: Promises) -> Row:
    """Tiles, the worst thing first, and since when."""
    return Row(
        title="",
        panels=(
            _health(),
            _failing(promises),
            _alerts(),
            _traffic(),
            _waiting(promises),
            _engines(),
            _since_when(),
        ),
    )


def _worst_burn() -> str:
    """Per region, how many times too fast its worst SLO spends its budget; `SILENT` where there is nothing to say."""
    burn = f"max by (region) (slo:current_burn_rate:ratio{{{OF_SLOS}}} >= 0)"
    known = f"sum by (region) (last_over_time(tidegate:requests:rate1m{{{IN_REGION}}}[1h]))"
    return f"{burn} or 0 * {known} - {-SILENT}"


def _health() -> Panel:
    return Panel(
        title="Regions: worst burn rate of any SLO",
        kind=Kind.TILES,
        question="Which region breaks a promise now? 1× spends the error budget exactly in the SLO's window.",
        action=(
            "Red: the tile beside it names the version. A bad canary: `tidegate rollback` takes it back; a bad stable: "
            "move users to a green region. Grey: nobody asks there, or nothing is heard of it; look at its proxy."
        ),
        queries=(Query(expr=_worst_burn(), legend="{{region}}"),),
        width=9,
        height=5,
        unit="suffix:×",
        decimals=1,
        steps=HEALTH_STEPS,
        states={SILENT: State(word="silent", colour=GREY)},
        nothing="no region is known",
    )


def _failing(promises: Promises) -> Panel:
    budget = promises.bad_share if promises.bad_share is not None else 0.01
    return Panel(
        title="Versions: share of requests that fail",
        kind=Kind.TILES,
        question="Which version failed its users in the last five minutes, and where? 5xx, timeouts, answers cut off.",
        action="Only the canary is red: it is the version, take it back. Both are red: it is the region.",
        queries=(Query(expr=f"{_lately('errors')} / ({_lately('requests')} > 0)", legend=ARM_LEGEND),),
        width=9,
        height=5,
        unit="percentunit",
        decimals=1,
        steps=too_much(budget, far=min(1.0, _PAGING * budget)),
        nothing="no requests",
    )


def _lately(signal: str) -> str:
    """Over five minutes: one failure of a quiet minute is no alarm."""
    return f"sum by ({ARM}) (avg_over_time(tidegate:{signal}:rate1m{{{OF_USERS}}}[5m]))"


def _alerts() -> Panel:
    return Panel(
        title="Alerts that fire",
        kind=Kind.TILES,
        question="What woke you, and how many SLOs say the same?",
        action="A page is yours now, a ticket may wait for the morning. Which SLO it is: the burn rates below.",
        queries=(
            Query(
                expr=f"count by (region, sloth_severity) ({FIRING})",
                legend="{{sloth_severity}} · {{region}}",
                needs=Needs.ALERTS,
            ),
        ),
        width=6,
        height=5,
        steps=(Step(colour=GREEN), Step(colour=RED, since=1)),
        colour_of={"ticket": YELLOW},
        nothing="none",
    )


def _traffic() -> Panel:
    return Panel(
        title="Regions: requests a second",
        kind=Kind.TILES,
        question="Do users still arrive?",
        action="0 in one region: its proxy or the way to it. 0 everywhere: the way in front of all of them.",
        queries=(Query(expr=f"sum by (region) (tidegate:requests:rate1m{{{OF_USERS}}})", legend="{{region}}"),),
        width=9,
        height=4,
        unit="reqps",
        steps=(Step(colour=RED), Step(colour=GREEN, since=0.001)),
        nothing="no region is known",
    )


def _waiting(promises: Promises) -> Panel:
    limit = promises.ttft_seconds
    return Panel(
        title="Versions: time to first token, p95",
        kind=Kind.TILES,
        question="Which version keeps its users waiting, and where?",
        action="Only the canary: it is slower. Both: the region is short of room; see its engines below.",
        queries=(Query(expr=f"tidegate:ttft_seconds:p95_1m{{{OF_USERS}}}", legend=ARM_LEGEND),),
        width=9,
        height=4,
        unit="s",
        steps=too_much(limit, near=0.8) if limit else (Step(colour=GREEN),),
        nothing="no answers",
    )


def _engines() -> Panel:
    return Panel(
        title="Engines that answer scrapes",
        kind=Kind.TILES,
        question="Is anything gone?",
        action="Fewer than before: the missing engine's log, then `tidegate status` or the pods of the region.",
        queries=(Query(expr=f"sum by (region) (tidegate:engines:count{{{IN_REGION}}})", legend="{{region}}"),),
        width=6,
        height=4,
        steps=(Step(colour=RED), Step(colour=GREEN, since=1)),
        nothing="none",
    )


def _since_when() -> Panel:
    return Panel(
        title="Since when",
        kind=Kind.STATES,
        question="When did it begin, and did it begin everywhere at once?",
        action="Compare with the weights below: what began with a step of a delivery was brought by it.",
        queries=(Query(expr=_worst_burn(), legend="{{region}}"),),
        width=24,
        height=4,
        unit="suffix:×",
        decimals=1,
        steps=HEALTH_STEPS,
        states={SILENT: State(word="silent", colour=GREY)},
    )
