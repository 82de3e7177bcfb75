"""The gates of each stage: their share of the error budget, of users' traffic, and the SLOs that they read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from gates.analyses.burn_rate import BurnRateGate, SlowerThan, scaled_to
from gates.analyses.errors import ErrorsGate
from gates.evidence.batch import Source
from gates.judge.spec import JudgeGate
from gates.model import StageKind
from gates.sequential_test import AnalysisPlan, analysis_plan_of
from gates.spec import Gates
from gates.traffic import Exposure
from pipelines.spec.delivery import CanaryStage, Delivery, LoadStage, ShadowStage
from pipelines.spec.slos import named_slo, promised
from slo.catalogue import group_of, slo_of
from slo.metrics import E2E, TIME_PER_OUTPUT_TOKEN, TTFT
from slo.model import EventSli
from slo.outputs import rule_file
from slo.promql import of_arm
from slo.rules import rules_for
from slo.signals import signal_groups
from slo.spec import SloSpec, Threshold
from slo.windows import windows_for
from tidegate.core.metrics import source_of

ONCE = 0.1
"""What the golden set gets, and all bakes together: each is one look at much evidence."""
OFFLINE = "offline"


def budget_shares(spec: Delivery) -> Mapping[str, float]:
    """Each trial's part of `gates.budget.rollback`, by its name (`canary@eu-west-1`, `bake@1/eu-west-1`).

    They sum to 1 at most, so whatever happens in whichever region, a version that is no worse is rolled back
    with the stated chance at most. What a spec does not ask leaves its part to the others.
    """
    found: dict[str, float] = {}
    rest = 1.0
    if spec.offline:
        found[OFFLINE] = ONCE
        rest -= ONCE
    # Promoted regions with a control: as long as a later wave serves the champion.
    controlled = spec.regions.waves[:-1] if spec.gates.of(ErrorsGate) else ()
    if bakes := [f"bake@{wave}/{region}" for wave, regions in enumerate(controlled, start=1) for region in regions]:
        found |= dict.fromkeys(bakes, ONCE / len(bakes))
        rest -= ONCE
    stages = [name for name in ("shadow", "canary") if getattr(spec, name)]
    trials = [f"{stage}@{region}" for region in spec.regions.names for stage in stages]
    if spec.load:
        trials.insert(0, f"load@{spec.regions.names[0]}")
    return found | dict.fromkeys(trials, rest / len(trials) if trials else 0.0)


def offline_rollback(spec: Delivery) -> float:
    """What each gate of the offline stage has of the chance that a version that is no worse is rolled back."""
    assert spec.offline is not None, "an offline stage is asked for that the spec does not have"
    return spec.gates.budget.rollback * budget_shares(spec)[OFFLINE] / len(spec.offline.gates)


def rules_of(spec: Delivery) -> str:
    """The rule file of a delivery's SLOs, each with the windows of its own period, and of its dashboards' signals."""
    service, counted_by, sources = spec.metadata.name, spec.counted_by, spec.sources
    groups = [group_of([item], service=service, counted_by=counted_by, sources=sources) for item in spec.slos]
    rules = [each for group in groups for each in rules_for(group, windows_for(group.slos[0].window))]
    signals = signal_groups(service=service, counted_by=counted_by, cost=spec.cost, sources=sources)
    return rule_file((*rules, *signals))


TIMES: Mapping[str, Literal["ttft", "itl", "e2e"]] = {
    TTFT.name: "ttft",
    TIME_PER_OUTPUT_TOKEN.name: "itl",
    E2E.name: "e2e",
}
"""Histograms that gates read themselves, and what they call them."""

ARM: Mapping[str, str] = {"region": "{{.region}}", "version": "{{.version}}"}
"""What narrows a query to the version on trial. Not its role: while requests are copied to it, its engines still
count as the canary's, and only the proxy knows that they are a shadow's."""


def gates_in(spec: Delivery, stage: LoadStage | ShadowStage | CanaryStage) -> Gates:
    """The delivery's gates as that stage asks them: the burn rate has the stage's own windows and events."""
    return gates_within(spec, stage.within, mirrored=isinstance(stage, ShadowStage))


def gates_within(spec: Delivery, within: timedelta, *, mirrored: bool = False) -> Gates:
    """As `gates_in`, of a stage that lasts so long; `mirrored` when its canary gets copies, which users never see."""
    burns = {}
    for gate, burn in spec.gates.of(BurnRateGate).items():
        slo = named_slo(burn.slo, spec.slos) if burn.slo else None
        whole = promised(burn, slo).model_copy(update=_events(slo, spec, mirrored=mirrored)) if slo else burn
        burns[gate] = scaled_to(whole, within, look=spec.look, written=burn.model_fields_set)
    return spec.gates.model_copy(update=burns) if burns else spec.gates


def _events(slo: SloSpec, spec: Delivery, *, mirrored: bool) -> dict[str, object]:
    """How the gate counts the SLO's events; nothing to add where it counts failed requests by itself."""
    if slo.errors and (slo.errors.counted_by or spec.counted_by) is spec.counted_by:
        return {}
    threshold = slo.threshold_in(spec.sources)
    time = threshold and _time_of(slo, threshold)
    # Copies reach the canary under the proxy's name for them, which its engines do not know: no times of theirs.
    if not mirrored and threshold and threshold.edge and time:
        return {"slower": SlowerThan(metric=time, than=timedelta(seconds=threshold.edge))}
    sli = slo_of(slo, service=spec.metadata.name, counted_by=spec.counted_by, sources=spec.sources).sli
    assert isinstance(sli, EventSli), f"an SLO on {slo.kind} counts no events"
    source, arm = source_of(spec.sources, slo.signal) if slo.signal else None, ARM
    if source is not None and not source.has_own_labels:
        role = "shadow" if mirrored else "canary"
        arm = source.labels_of(service="", region="{{.region}}", role=role, version="{{.version}}")
    errors, total = (of_arm(query, window="{{.window}}", arm=arm) for query in (sli.error_query, sli.total_query))
    # The names in them are ours: no series of errors means that there were none, and not that one is misspelt.
    return {"errors_query": f"sum({errors}) or vector(0)", "total_query": f"sum({total})", "counted_as": "rate"}


def _time_of(slo: SloSpec, threshold: Threshold) -> Literal["ttft", "itl", "e2e"] | None:
    """What gates call it; None of what they do not read, such as a token's own times."""
    if threshold.series:
        return "ttft" if slo.ttft else "e2e" if slo.e2e else None
    return TIMES.get(threshold.histogram.name)


def terms_of(
    spec: Delivery,
    stage: LoadStage | ShadowStage | CanaryStage,
    region: str,
    *,
    sources: Mapping[str, tuple[Source, ...]] | None = None,
) -> AnalysisPlan:
    """By what the gates of a stage are judged in a region, in the plan and then: its share of the delivery's budget.

    `sources` say who counts live traffic for which gate; all that may when None.
    """
    name: StageKind = "canary"
    if not isinstance(stage, CanaryStage):
        name = "load" if isinstance(stage, LoadStage) else "shadow"
    return analysis_plan_of(
        gates_in(spec, stage),
        stage.gates,
        sources=spec.sources_in(name) if sources is None else sources,
        share=budget_shares(spec)[f"{name}@{region}"],
        mirrored=stage.percent / 100 if isinstance(stage, ShadowStage) else None,
    )


def traffic_of(spec: Delivery, stage: LoadStage | ShadowStage | CanaryStage, percent: int) -> Exposure:
    """What the canary gets in a stage: so many percent of users, copies of as many next to pairs, or our load."""
    within = stage.within.total_seconds()
    if isinstance(stage, LoadStage):
        seconds = stage.block_seconds
        return Exposure(block_seconds=seconds, within_seconds=within, look_seconds=seconds)
    judge = spec.gates.only(JudgeGate)
    copies = {"mirrored": True, "pairs_per_second": stage.pairs_per_second} if isinstance(stage, ShadowStage) else {}
    return Exposure(
        requests_per_second=spec.traffic.requests_per_second if spec.traffic else None,
        percent=percent,
        judged=judge.sample if judge and copies else 1.0,
        sampled=spec.samples.share if spec.samples else 1.0,
        within_seconds=within,
        look_seconds=spec.look.total_seconds(),
        **copies,
    )
