"""spec + registry state -> plan: which steps, in which order, and what each gate needs. Pure.

A process that carries on compares what it would plan with what was settled when the delivery was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256

from gates.analyses.command import CommandGate
from gates.analyses.quality import QualityGate, quality_forecast
from gates.planning.forecast import forecasts, round_up
from gates.traffic import Change, GateForecast
from pipelines.errors import NotAsPlanned, PlanRefused
from pipelines.model import GatePlan, Plan, PlanStep, Resolved, SpecChange, StageName, UnresolvedPlan
from pipelines.plan.gates import terms_of, traffic_of
from pipelines.spec.approvals import asked_before
from pipelines.spec.delivery import CanaryStage, Delivery, LoadStage, ShadowStage
from registry.files import compare
from registry.model import ModelVersion
from tidegate.core.units import format_duration

ENGINE_START_SECONDS = 25.0
"""A first guess for an engine that starts next to others; what the display corrects as it learns."""
SMOKE_SECONDS = 2.0
"""Three short answers; also what a promotion is expected to take, which needs no start."""

FINALIZE_SECONDS = 1.0


def make_plan(spec: Delivery, version: ModelVersion, champion: ModelVersion, *, prompts: int) -> Plan:
    """Lay out every step of delivering `version`; `prompts` is the size of the golden set.

    Raises:
        PlanRefused: when a stage could not reach a verdict: too few prompts, or too little time at the stated traffic.
    """
    steps = _reachable_steps(spec, prompts)
    return Plan(name=spec.metadata.name, version=version, champion=champion, regions=spec.regions.names, steps=steps)


def make_offline_plan(spec: Delivery, *, prompts: int) -> UnresolvedPlan:
    """As `make_plan`, of whatever versions have the aliases then.

    Raises:
        PlanRefused: when a stage could not reach a verdict.
    """
    return UnresolvedPlan(
        name=spec.metadata.name,
        model=spec.model.name,
        origin=spec.model.origin,
        target=spec.model.target,
        regions=spec.regions.names,
        steps=_reachable_steps(spec, prompts),
    )


def _reachable_steps(spec: Delivery, prompts: int) -> tuple[PlanStep, ...]:
    refuse_small_golden_set(spec, prompts)
    steps = steps_of(spec, prompts=prompts)
    refuse_hopeless(spec, steps, prompts)
    return steps


def steps_of(spec: Delivery, *, prompts: int) -> tuple[PlanStep, ...]:
    """Every step of a delivery by this spec, whatever the version, each with what must be approved before it begins."""
    steps = tuple(_steps(spec, prompts))
    asked = [
        tuple(dict.fromkeys(filter(None, (asked_before(a, each, steps) for a in spec.approvals)))) for each in steps
    ]
    return tuple(step.model_copy(update={"approvals": names}) for step, names in zip(steps, asked, strict=True))


def _steps(spec: Delivery, prompts: int) -> Iterator[PlanStep]:
    yield PlanStep(stage=StageName.BUILD, expected_seconds=ENGINE_START_SECONDS)
    for wave, regions in enumerate(spec.regions.waves, start=1):
        for region in regions:
            yield from _region_steps(spec, wave, region, prompts)
        bake = spec.regions.bake.total_seconds()
        yield PlanStep(stage=StageName.BAKE, wave=wave, expected_seconds=bake)
    yield PlanStep(stage=StageName.FINALIZE, expected_seconds=FINALIZE_SECONDS)


def _region_steps(spec: Delivery, wave: int, region: str, prompts: int) -> Iterator[PlanStep]:
    def step(stage: StageName, seconds: float, gates: tuple[GatePlan, ...] = (), weight: int | None = None) -> PlanStep:
        return PlanStep(stage=stage, wave=wave, region=region, weight=weight, expected_seconds=seconds, gates=gates)

    yield step(StageName.DEPLOY, ENGINE_START_SECONDS)
    if spec.asks_arms(region):
        yield step(StageName.SMOKE, SMOKE_SECONDS)
    # Answers do not depend on the region; one is enough, before any user has met the version.
    if spec.offline and region == spec.regions.names[0]:
        gates = tuple(_offline_plan(spec, gate, prompts) for gate in spec.offline.gates)
        yield step(StageName.OFFLINE, sum(gate.seconds or prompts * 0.5 for gate in gates), gates)
    if spec.load and region == spec.regions.names[0]:
        gates = _gate_plans(spec, spec.load, region)
        yield step(StageName.LOAD, ENGINE_START_SECONDS + _stage_seconds(gates, 0.0), gates)
    if spec.shadow:
        gates = _gate_plans(spec, spec.shadow, region, spec.shadow.percent)
        yield step(StageName.SHADOW, _stage_seconds(gates, spec.shadow.at_least.total_seconds()), gates)
    for weight in spec.canary.weights if spec.canary else ():
        assert spec.canary is not None
        gates = _gate_plans(spec, spec.canary, region, weight)
        yield step(StageName.CANARY, _stage_seconds(gates, spec.canary.at_least.total_seconds()), gates, weight)
    yield step(StageName.PROMOTE, SMOKE_SECONDS)


def _gate_plans(
    spec: Delivery, stage: LoadStage | ShadowStage | CanaryStage, region: str, percent: int = 0
) -> tuple[GatePlan, ...]:
    """What each gate of one trial needs, by the same terms by which it will be judged."""
    terms, exposure = terms_of(spec, stage, region), traffic_of(spec, stage, percent)
    found = forecasts(terms, exposure)
    return tuple(_of_gate(gate, [each for each in found if each.gate == gate]) for gate in stage.gates)


def _of_gate(gate: str, found: Sequence[GateForecast]) -> GatePlan:
    """A gate has passed once it has on every source's word."""
    needs = [each.canary_requests_to_pass for each in found if each.canary_requests_to_pass is not None]
    seconds = [each.seconds_to_pass for each in found if each.seconds_to_pass is not None]
    return GatePlan(
        gate=gate,
        needs=max(needs) if len(needs) == len(found) else None,
        seconds=max(seconds) if len(seconds) == len(found) else None,
        forecasts=tuple(found),
    )


def _offline_plan(spec: Delivery, gate: str, prompts: int) -> GatePlan:
    """A command costs no request that is known here, and its time limit at most."""
    settings = spec.gates.asked[gate]
    if isinstance(settings, CommandGate):
        return GatePlan(gate=gate, needs=None, seconds=settings.within.total_seconds())
    assert isinstance(settings, QualityGate), "an offline stage asks no other kind"
    forecast = quality_forecast(settings, prompts=prompts).model_copy(update={"gate": gate})
    return GatePlan(gate=gate, needs=prompts, seconds=None, forecasts=(forecast,))


def _stage_seconds(gates: tuple[GatePlan, ...], at_least: float) -> float:
    return max([at_least, *(gate.seconds or 0.0 for gate in gates)])


def refuse_small_golden_set(spec: Delivery, prompts: int) -> None:
    """A golden set is all the evidence its stage will ever have."""
    quality = spec.gates.only(QualityGate)
    asked = spec.offline and set(spec.offline.gates) & set(spec.gates.of(QualityGate))
    needs = quality.min_prompts if quality and asked else 0
    if prompts < needs:
        raise PlanRefused(
            f"offline: gate quality needs {needs} prompts, but the golden set has {prompts}",
            hint="add prompts to it, or lower the gate's minimum",
        )


def refuse_hopeless(spec: Delivery, steps: Sequence[PlanStep], prompts: int) -> None:
    """Say no before anything is deployed to a stage whose gates would not pass even a healthy version in time."""
    forecasts_of = ((step, each) for step in steps for gate in step.gates for each in gate.forecasts)
    found = [(step, forecast) for step, forecast in forecasts_of if not forecast.reachable]
    if not found:
        return
    first, forecast = found[0]
    others = dict.fromkeys(
        f"{step.id} {each.gate}" for step, each in found[1:] if (step, each.gate) != (first, forecast.gate)
    )
    more = f"; the same is true of {', '.join(others)}" if others else ""
    proposals = proposals_for(spec, steps, lambda changed: steps_of(changed, prompts=prompts))
    lines = [
        f"`{each.line}`" + (f" (half pass within {round_up(each.seconds_to_pass)})" if each.seconds_to_pass else "")
        for each in proposals
    ]
    hint = f"one of: {'; '.join(lines)}" if lines else "ask for what a healthy version shows"
    raise PlanRefused(f"{first.id}: {hopeless(forecast)}{more}", hint=hint, proposals=proposals)


def hopeless(forecast: GateForecast) -> str:
    """Why a gate that is not reachable is not."""
    if forecast.seconds_to_pass is None:
        return f"gate {forecast.gate} would never pass even a healthy version: what it asks for cannot be proven"
    return (
        f"gate {forecast.gate} needs about {forecast.canary_requests_to_pass:,} {forecast.unit} to see that a healthy "
        f"version is fine, which take {round_up(forecast.seconds_to_pass)} at the stated traffic, "
        f"but the stage ends after {round_up(forecast.within_seconds or 0.0)}"
    )


def settings_digest(spec: Delivery) -> str:
    """One digest over the settings of every gate, those included that the spec leaves to their defaults."""
    return sha256(spec.gates.model_dump_json(by_alias=True).encode()).hexdigest()


def refuse_other_files(resolved: Resolved, found: Mapping[str, str], spec_file: str, delivery: str) -> None:
    """Say no to kept files that are not those with which the delivery was opened.

    `found` has the digests of all files that were kept, by their places, `spec_file` the place of the spec among them.

    Raises:
        NotAsPlanned: a file was changed, added or taken away since, or the spec is none of them.
    """
    if spec_file not in resolved.files:
        raise NotAsPlanned(
            f"delivery {delivery}: its spec {spec_file!r} is none of the files it was opened with",
            hint="resume with the spec that it was opened with",
        )
    difference = compare(resolved.files, found)
    if difference:
        raise NotAsPlanned(
            f"delivery {delivery}: its kept files are not those it was opened with: {difference}",
            hint="deliver the version again",
        )


def refuse_other_plan(plan: Plan, spec: Delivery, *, prompts: int, delivery: str) -> None:
    """Say no to a plan that is not what its spec says: steps, approvals, the settings of gates.

    Raises:
        NotAsPlanned: it is not; names the first difference.
    """
    for difference in _differences(plan, spec, prompts):
        raise NotAsPlanned(f"delivery {delivery}: {difference}")


def _differences(plan: Plan, spec: Delivery, prompts: int) -> Iterator[str]:
    if settings_digest(spec) != plan.resolved.gates:
        yield "its gates ask for something else than when it was opened"
    planned = {step.id: step.approvals for step in plan.steps}
    wanted = {step.id: step.approvals for step in steps_of(spec, prompts=prompts)}
    if list(planned) != list(wanted):
        yield "its plan has other steps than its spec"
    for step in planned.keys() & wanted.keys():
        if planned[step] != wanted[step]:
            yield f"its plan asks for other approvals than its spec before {step}"
    if plan.name != spec.metadata.name or plan.version.name != spec.model.name:
        yield "its plan is of another model than its spec"


Planned = Callable[[Delivery], Sequence[PlanStep]]
"""The steps of a delivery by another spec."""


def proposals_for(spec: Delivery, steps: Sequence[PlanStep], planned: Planned) -> tuple[SpecChange, ...]:
    """Changes of the spec, each of which alone is enough for the first stage that is too late; none where none is."""
    late = [step for step in steps if _late(step)]
    if not late:
        return ()
    stage = late[0].stage
    found = [each for step in late if step.stage is stage for each in _late(step)]
    told = []
    for change, text, update in _changes(spec, stage, found):
        entries = tuple(
            each.model_copy(update={str(stage): getattr(each, stage).model_copy(update=dict(update))})
            if each.name == stage
            else each
            for each in spec.stages
        )
        seconds = _seconds(planned(spec.model_copy(update={"stages": entries})), stage)
        if seconds is not None:
            told.append(SpecChange(change=change, line=f"{stage}: {{{text}}}", seconds_to_pass=seconds))
    return tuple(told)


def _late(step: PlanStep) -> list[GateForecast]:
    return [each for gate in step.gates for each in gate.forecasts if not each.reachable]


def _seconds(steps: Sequence[PlanStep], stage: StageName) -> float | None:
    """How long the slowest gate of the stage's steps takes; None when one is still too late."""
    asked = [step for step in steps if step.stage is stage]
    if any(_late(step) for step in asked):
        return None
    return max((gate.seconds or 0.0 for step in asked for gate in step.gates), default=0.0)


def _changes(
    spec: Delivery, stage: StageName, late: Sequence[GateForecast]
) -> Iterator[tuple[Change, str, Mapping[str, object]]]:
    """Everything that could be changed of the stage: what it is called, how it is written, and the fields."""
    if longest := _most(late, "within"):
        within = timedelta(seconds=longest)
        yield "within", f"within: {format_duration(within)}", {"within": within}
    least = _most(late, "percent")
    if least is not None and spec.canary and stage is StageName.CANARY:
        # Those of the stage that would do; where none would, the least that does.
        weights = tuple(weight for weight in spec.canary.weights if weight >= least) or (int(least),)
        yield "percent", f"weights: {list(weights)}", {"weights": weights}
    elif least is not None and spec.shadow:
        yield "percent", f"percent: {int(least)}", {"percent": int(least)}
    if pairs := _most(late, "pairs_per_second"):
        yield "pairs_per_second", f"pairs_per_second: {pairs:g}", {"pairs_per_second": pairs}


def _most(late: Sequence[GateForecast], change: Change) -> float | None:
    """What is enough for all late gates; None when one of them has no such proposal."""
    found = [gate.proposals.get(change) for gate in late]
    return None if None in found else max(filter(None, found))
