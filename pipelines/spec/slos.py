"""SLOs of a delivery: what its engine does not export of them, and the burn-rate gate on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gates.analyses.burn_rate import BurnRateGate, BurnWindows
from slo.metrics import BUCKETS, WITHOUT_METRICS
from slo.spec import LEAST_OBJECTIVE, SloSpec
from slo.windows import windows_for
from tidegate.core.model import SpecConflict

ON_REQUESTS = ("errors", "ttft", "e2e", "tokens_per_second", "queue_time")
"""Kinds of SLO whose events are requests, each of which is a throw of its own. The gaps between tokens of one
request are not, nor is a KV cache looked at twice."""


def slo_conflicts(gate: BurnRateGate, slos: Sequence[SloSpec]) -> Iterator[SpecConflict]:
    """What is wrong with the SLO that the gate names; places are those within the gate."""
    if gate.slo is None:
        return
    slo = named_slo(gate.slo, slos)
    if slo is None:
        known = f"one of {', '.join(each.name for each in slos)}" if slos else "the name of an SLO at `slos`"
        yield SpecConflict(("slo",), f"'{gate.slo}', which no SLO is called", known)
    elif slo.kind not in ON_REQUESTS:
        kinds = ", ".join(ON_REQUESTS)
        yield SpecConflict(("slo",), f"an SLO on {slo.kind}", f"one whose events are requests: {kinds}")
    # Of an objective that is refused itself, nothing else is told.
    elif slo.objective >= LEAST_OBJECTIVE:
        yield from promised(gate, slo).out_of_reach()


def named_slo(name: str, slos: Sequence[SloSpec]) -> SloSpec | None:
    """The SLO with that name; None when there is none."""
    return next((slo for slo in slos if slo.name == name), None)


def promised(gate: BurnRateGate, slo: SloSpec) -> BurnRateGate:
    """With the SLO's objective, and the windows of the alert that pages for it."""
    known = windows_for(slo.window)
    windows = {
        name: BurnWindows(short=speed.short, long=speed.long, factor=known.factor(speed))
        for name, speed in (("fast", known.page.quick), ("slow", known.page.slow))
        if name not in gate.model_fields_set
    }
    return gate.model_copy(update={"objective": round(slo.objective / 100, 12), **windows})


def untold_by_engine(slos: Sequence[SloSpec], args: Mapping[str, object], *, prebuilt: bool) -> Iterator[SpecConflict]:
    """What is wrong with promises on an engine with these arguments of vLLM; `prebuilt` has an entrypoint of its own.

    Some arguments have vLLM export other metrics, and how a start went is known by tidegate's entrypoint alone.
    """
    if slos and args.get(WITHOUT_METRICS):
        found = "metrics that the SLOs are not written on"
        yield SpecConflict(("engine", "vllm", "args", WITHOUT_METRICS), found, "vLLM's own metrics, or no `slos`")
    buckets = args.get(BUCKETS)
    for index, slo in enumerate(slos):
        threshold = slo.threshold
        listed = buckets.get(threshold.histogram.family) if threshold and isinstance(buckets, Mapping) else None
        if threshold and isinstance(listed, list | tuple) and threshold.edge not in listed:
            found = f"no edge at {threshold.text(threshold.asked)} in {threshold.histogram.family}"
            expected = f"{threshold.edge:g} in its list, or no list: an edge at each threshold comes by itself"
            yield SpecConflict(("engine", "vllm", "args", BUCKETS), found, expected)
        if slo.start and prebuilt:
            expected = "an engine that `tidegate engine build` makes: its entrypoint tells how it started"
            yield SpecConflict(("slos", index, "start"), "an SLO on starts with `engine.image`", expected)
