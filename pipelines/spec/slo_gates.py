"""The burn-rate gate on an SLO of the delivery: the SLO's objective, its alerts' factors, and its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from gates.analyses.burn_rate import BurnRateGate, BurnWindows, SlowerThan, scaled_to
from slo.catalogue import slo_of
from slo.metrics.vllm import E2E, TIME_PER_OUTPUT_TOKEN, TTFT
from slo.model import EventSli
from slo.promql import of_arm
from slo.spec import CountedBy, SloSpec
from slo.windows import windows_for
from tidegate.core.model import SpecConflict, Value

ON_REQUESTS = ("errors", "ttft", "e2e", "tokens_per_second", "queue_time")
"""Kinds of SLO whose events are requests, each of which is a throw of its own. The gaps between tokens of one
request are not, nor is a KV cache looked at twice."""

TIMES: Mapping[str, Literal["ttft", "itl", "e2e"]] = {
    TTFT.name: "ttft",
    TIME_PER_OUTPUT_TOKEN.name: "itl",
    E2E.name: "e2e",
}
"""Histograms that gates read themselves, and what they call them."""

ARM = {"region": "{{.region}}", "version": "{{.version}}"}
"""What narrows a query to the version on trial. Not its role: while requests are copied to it, its engines still
count as the canary's, and only the proxy knows that they are a shadow's."""


class GatedStage(Value):
    """What a gate must know of the stage that asks it."""

    service: str
    """The delivery's name."""
    within: timedelta
    look: timedelta
    """Between two looks at the evidence."""
    mirrored: bool = False
    """Whether the canary gets copies, which users never see."""
    counted_by: CountedBy = CountedBy.PROXY
    """Who counts errors in this fleet unless an SLO says otherwise."""


def odds_with(gate: BurnRateGate, slos: Sequence[SloSpec]) -> Iterator[SpecConflict]:
    """What is wrong with the SLO that the gate names; places are those within the gate."""
    if gate.slo is None:
        return
    slo = _named(gate.slo, slos)
    if slo is None:
        known = f"one of {', '.join(each.name for each in slos)}" if slos else "the name of an SLO at `slos`"
        yield SpecConflict(("slo",), f"'{gate.slo}', which no SLO is called", known)
    elif slo.kind not in ON_REQUESTS:
        kinds = ", ".join(ON_REQUESTS)
        yield SpecConflict(("slo",), f"an SLO on {slo.kind}", f"one whose events are requests: {kinds}")
    else:
        yield from _promised(gate, slo).out_of_reach()


def burn_gate(gate: BurnRateGate, slos: Sequence[SloSpec], stage: GatedStage) -> BurnRateGate:
    """The gate as it is judged in one stage: with an objective, events, and windows of the stage's length."""
    slo = _named(gate.slo, slos) if gate.slo else None
    whole = gate
    if slo:
        whole = _promised(gate, slo).model_copy(update=_events(slo, stage))
    return scaled_to(whole, stage.within, look=stage.look, written=gate.model_fields_set)


def _named(name: str, slos: Sequence[SloSpec]) -> SloSpec | None:
    return next((slo for slo in slos if slo.name == name), None)


def _promised(gate: BurnRateGate, slo: SloSpec) -> BurnRateGate:
    """With the SLO's objective, and the windows of the alert that pages for it."""
    page = windows_for(slo.window).page
    windows = {
        name: BurnWindows(short=speed.short, long=speed.long, factor=speed.factor)
        for name, speed in (("fast", page.quick), ("slow", page.slow))
        if name not in gate.model_fields_set
    }
    return gate.model_copy(update={"objective": round(slo.objective / 100, 12), **windows})


def _events(slo: SloSpec, stage: GatedStage) -> dict[str, object]:
    """How the gate counts the SLO's events; nothing to add where it counts failed requests by itself."""
    if slo.errors and (slo.errors.counted_by or stage.counted_by) is stage.counted_by:
        return {}
    time = slo.threshold and TIMES.get(slo.threshold.histogram.name)
    # Copies reach the canary under the proxy's name for them, which its engines do not know: no times of theirs.
    if stage.mirrored or not (slo.threshold and slo.threshold.edge and time):
        return _queries(slo, stage)
    return {"slower": SlowerThan(metric=time, than=timedelta(seconds=slo.threshold.edge))}


def _queries(slo: SloSpec, stage: GatedStage) -> dict[str, object]:
    sli = slo_of(slo, service=stage.service, counted_by=stage.counted_by).sli
    assert isinstance(sli, EventSli), f"an SLO on {slo.kind} counts no events"
    errors, total = (of_arm(query, window="{{.window}}", arm=ARM) for query in (sli.error_query, sli.total_query))
    # The names in them are ours: no series of errors means that there were none, and not that one is misspelt.
    return {"errors_query": f"sum({errors}) or vector(0)", "total_query": f"sum({total})", "counted_as": "rate"}
