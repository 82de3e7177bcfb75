"""The gates of each stage: their share of the error budget, of users' traffic, and the SLOs that they read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

from gates.analyses.burn_rate import BurnRateGate, SlowerThan, scaled_to
from gates.analyses.errors import ErrorsGate
from gates.judge.spec import JudgeGate
from gates.spec import Gates
from gates.traffic import Exposure
from pipelines.spec.delivery import CanaryStage, Delivery, LoadStage, ShadowStage
from pipelines.spec.slos import named_slo, promised
from slo.catalogue import group_of, slo_of
from slo.metrics import E2E, TIME_PER_OUTPUT_TOKEN, TTFT
from slo.model import EventSli
from slo.outputs import rule_file
from slo.promql import of_arm
from slo.rules import RuleGroup, rules_for
from slo.signals import signal_groups
from slo.spec import CountedBy, SloSpec, Threshold
from slo.windows import windows_for
from tidegate.core.metrics import MetricSource, source_of
from tidegate.core.model import Value

ONCE = 0.1
"""What the golden set gets, and all bakes together: each is one look at much evidence."""
OFFLINE = "offline"


def budget_shares(spec: Delivery) -> Mapping[str, float]:
    """Each trial's part of `gates.budget.rollback`, by its name (`canary@eu-west-1`, `bake@1/eu-west-1`).

    They sum to 1 at most, so whatever happens in whichever region, a version that is no worse is taken back
    with the stated chance at most. What a spec does not ask leaves its part to the others.
    """
    found: dict[str, float] = {}
    rest = 1.0
    if spec.offline:
        found[OFFLINE] = ONCE
        rest -= ONCE
    if bakes := _bakes(spec):
        found |= dict.fromkeys(bakes, ONCE / len(bakes))
        rest -= ONCE
    stages = [name for name in ("shadow", "canary") if getattr(spec, name)]
    trials = [f"{stage}@{region}" for region in spec.regions.names for stage in stages]
    if spec.load:
        trials.insert(0, f"load@{spec.regions.names[0]}")
    return found | dict.fromkeys(trials, rest / len(trials) if trials else 0.0)


def offline_rollback(spec: Delivery) -> float:
    """What each gate of the offline stage has of the chance that a version that is no worse is taken back."""
    assert spec.offline is not None, "an offline stage is asked for that the spec does not have"
    return spec.gates.budget.rollback * budget_shares(spec)[OFFLINE] / len(spec.offline.gates)


def _bakes(spec: Delivery) -> list[str]:
    """Promoted regions with a control: as long as a later wave serves the champion."""
    waves = spec.regions.waves[:-1] if spec.gates.of(ErrorsGate) else ()
    return [f"bake@{wave}/{region}" for wave, regions in enumerate(waves, start=1) for region in regions]


def rules_of(spec: Delivery) -> str:
    """The rule file of a delivery's SLOs, and of the signals that its dashboards show."""
    signals = signal_groups(
        service=spec.metadata.name, counted_by=spec.counted_by, cost=spec.cost, sources=spec.sources
    )
    return rule_file((*_slo_rules(spec), *signals))


def _slo_rules(spec: Delivery) -> tuple[RuleGroup, ...]:
    """SLO by SLO: each has the alert windows of its own period."""
    groups = [
        group_of([item], service=spec.metadata.name, counted_by=spec.counted_by, sources=spec.sources)
        for item in spec.slos
    ]
    return tuple(rules for group in groups for rules in rules_for(group, windows_for(group.slos[0].window)))


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
    sources: tuple[MetricSource, ...] = ()
    """Where it is read what others count."""


def burn_gate(gate: BurnRateGate, slos: Sequence[SloSpec], stage: GatedStage) -> BurnRateGate:
    """The gate as it is judged in one stage: with an objective, events, and windows of the stage's length."""
    slo = named_slo(gate.slo, slos) if gate.slo else None
    whole = gate
    if slo:
        whole = promised(gate, slo).model_copy(update=_events(slo, stage))
    return scaled_to(whole, stage.within, look=stage.look, written=gate.model_fields_set)


def _events(slo: SloSpec, stage: GatedStage) -> dict[str, object]:
    """How the gate counts the SLO's events; nothing to add where it counts failed requests by itself."""
    if slo.errors and (slo.errors.counted_by or stage.counted_by) is stage.counted_by:
        return {}
    threshold = slo.threshold_in(stage.sources)
    time = threshold and _time_of(slo, threshold)
    # Copies reach the canary under the proxy's name for them, which its engines do not know: no times of theirs.
    if stage.mirrored or not (threshold and threshold.edge and time):
        return _queries(slo, stage)
    return {"slower": SlowerThan(metric=time, than=timedelta(seconds=threshold.edge))}


def _time_of(slo: SloSpec, threshold: Threshold) -> Literal["ttft", "itl", "e2e"] | None:
    """What gates call it; None of what they do not read, such as a token's own times."""
    if threshold.series:
        return "ttft" if slo.ttft else "e2e" if slo.e2e else None
    return TIMES.get(threshold.histogram.name)


def _queries(slo: SloSpec, stage: GatedStage) -> dict[str, object]:
    sli = slo_of(slo, service=stage.service, counted_by=stage.counted_by, sources=stage.sources).sli
    assert isinstance(sli, EventSli), f"an SLO on {slo.kind} counts no events"
    arm = _arm(slo, stage)
    errors, total = (of_arm(query, window="{{.window}}", arm=arm) for query in (sli.error_query, sli.total_query))
    # The names in them are ours: no series of errors means that there were none, and not that one is misspelt.
    return {"errors_query": f"sum({errors}) or vector(0)", "total_query": f"sum({total})", "counted_as": "rate"}


def _arm(slo: SloSpec, stage: GatedStage) -> Mapping[str, str]:
    source = source_of(stage.sources, slo.signal) if slo.signal else None
    if source is None or source.has_own_labels:
        return ARM
    role = "shadow" if stage.mirrored else "canary"
    return source.labels_of(service="", region="{{.region}}", role=role, version="{{.version}}")


def gates_in(spec: Delivery, stage: LoadStage | ShadowStage | CanaryStage) -> Gates:
    """The delivery's gates as that stage asks them: the burn rate has the stage's own windows and events."""
    return gates_within(spec, stage.within, mirrored=isinstance(stage, ShadowStage))


def gates_within(spec: Delivery, within: timedelta, *, mirrored: bool = False) -> Gates:
    """As `gates_in`, of a stage that lasts so long; `mirrored` when its canary gets copies only."""
    burns = spec.gates.of(BurnRateGate)
    if not burns:
        return spec.gates
    stage = GatedStage(
        service=spec.metadata.name,
        within=within,
        look=spec.look,
        mirrored=mirrored,
        counted_by=spec.counted_by,
        sources=spec.sources,
    )
    return spec.gates.model_copy(update={gate: burn_gate(burn, spec.slos, stage) for gate, burn in burns.items()})


def shadow_traffic(spec: Delivery) -> Exposure:
    """Copies of users' requests, and pairs of our own."""
    assert spec.shadow is not None, "a shadow stage is planned that the spec does not have"
    judge = spec.gates.only(JudgeGate)
    return Exposure(
        requests_per_second=_users(spec),
        percent=spec.shadow.percent,
        mirrored=True,
        pairs_per_second=spec.shadow.pairs_per_second,
        judged=judge.sample if judge else 1.0,
        within_seconds=spec.shadow.within.total_seconds(),
        look_seconds=spec.look.total_seconds(),
    )


def load_traffic(spec: Delivery) -> Exposure:
    """Blocks of our own load."""
    assert spec.load is not None, "a load stage is planned that the spec does not have"
    return Exposure(
        block_seconds=spec.load.block_seconds,
        within_seconds=spec.load.within.total_seconds(),
        look_seconds=spec.load.block_seconds,
    )


def canary_traffic(spec: Delivery, weight: int) -> Exposure:
    """So many percent of users."""
    assert spec.canary is not None, "a canary stage is planned that the spec does not have"
    return Exposure(
        requests_per_second=_users(spec),
        percent=weight,
        sampled=spec.samples.share if spec.samples else 1.0,
        within_seconds=spec.canary.within.total_seconds(),
        look_seconds=spec.look.total_seconds(),
    )


def _users(spec: Delivery) -> float | None:
    return spec.traffic.requests_per_second if spec.traffic else None
