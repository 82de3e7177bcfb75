"""spec + registry state -> plan: which steps, in which order, and what each gate needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gates.spec import Gates
from pipelines.errors import PlanRefused
from pipelines.model import GatePlan, Plan, StageName, Step
from pipelines.spec import Delivery
from registry.model import ModelVersion

ENGINE_START_SECONDS = 25.0
"""A first guess for an engine that starts beside others; what the display corrects as it learns."""
SMOKE_SECONDS = 2.0
"""Three short answers; also what a promotion is expected to take, which needs no start."""

FINALIZE_SECONDS = 1.0


def make_plan(spec: Delivery, version: ModelVersion, champion: ModelVersion, *, prompts: int) -> Plan:
    """Lay out every step of delivering `version`; `prompts` is the size of the golden set.

    Raises:
        PlanRefused: when a stage could not reach a verdict: too few prompts, or too little time at the stated traffic.
    """
    refuse_small_golden_set(spec, prompts)
    steps = tuple(_steps(spec, prompts))
    refuse_hopeless(spec, steps)
    return Plan(name=spec.metadata.name, version=version, champion=champion, regions=spec.regions.names, steps=steps)


def _steps(spec: Delivery, prompts: int) -> Iterator[Step]:
    yield Step(stage=StageName.BUILD, expected_seconds=ENGINE_START_SECONDS)
    for wave, regions in enumerate(spec.regions.waves, start=1):
        for region in regions:
            yield from _region_steps(spec, wave, region, prompts)
        bake = spec.regions.bake.total_seconds()
        yield Step(stage=StageName.BAKE, wave=wave, expected_seconds=bake)
    yield Step(stage=StageName.FINALIZE, expected_seconds=FINALIZE_SECONDS)


def _region_steps(spec: Delivery, wave: int, region: str, prompts: int) -> Iterator[Step]:
    def step(stage: StageName, seconds: float, gates: tuple[GatePlan, ...] = (), weight: int | None = None) -> Step:
        return Step(stage=stage, wave=wave, region=region, weight=weight, expected_seconds=seconds, gates=gates)

    yield step(StageName.DEPLOY, ENGINE_START_SECONDS)
    yield step(StageName.SMOKE, SMOKE_SECONDS)
    # Answers do not depend on the region; one is enough, before any user has met the version.
    if spec.offline and region == spec.regions.names[0]:
        gates = tuple(GatePlan(gate=gate, needs=prompts, seconds=None) for gate in spec.offline.gates)
        yield step(StageName.OFFLINE, prompts * 0.5, gates)
    if spec.shadow:
        rates = shadow_rates(spec)
        gates = tuple(gate_plan(spec.gates, gate, rates(gate)) for gate in spec.shadow.gates)
        yield step(StageName.SHADOW, _stage_seconds(gates, spec.shadow.at_least.total_seconds()), gates)
    for weight in spec.canary.weights if spec.canary else ():
        assert spec.canary is not None
        rate = _rate(spec, weight)
        gates = tuple(gate_plan(spec.gates, gate, rate) for gate in spec.canary.gates)
        yield step(StageName.CANARY, _stage_seconds(gates, spec.canary.at_least.total_seconds()), gates, weight)
    yield step(StageName.PROMOTE, SMOKE_SECONDS)


def shadow_rates(spec: Delivery) -> Callable[[str], float | None]:
    """Requests a second on the canary that each gate sees in shadow: pairs, or mirrored traffic."""
    assert spec.shadow is not None
    pairs, percent = spec.shadow.pairs_per_second, spec.shadow.percent
    return lambda gate: _rate(spec, percent) if gate == "errors" else pairs


def _rate(spec: Delivery, percent: int) -> float | None:
    return spec.traffic.requests_per_second * percent / 100 if spec.traffic else None


def gate_plan(settings: Gates, gate: str, rate: float | None) -> GatePlan:
    """What `gate` needs, at `rate` requests a second on the canary."""
    needs = minimum(settings, gate)
    return GatePlan(gate=gate, needs=needs, seconds=needs / rate if rate else None)


def minimum(settings: Gates, gate: str) -> int:
    """The sample below which `gate` gives no verdict: requests, prompts or pairs."""
    sizes = {
        "latency": settings.latency and settings.latency.min_requests,
        "errors": settings.errors and settings.errors.min_requests,
        "quality": settings.quality and settings.quality.min_prompts,
        "agreement": settings.agreement and settings.agreement.min_pairs,
    }
    return sizes[gate] or 0


def _stage_seconds(gates: tuple[GatePlan, ...], at_least: float) -> float:
    return max([at_least, *(gate.seconds or 0.0 for gate in gates)])


def refuse_small_golden_set(spec: Delivery, prompts: int) -> None:
    """A golden set is all the evidence its stage will ever have."""
    for gate in spec.offline.gates if spec.offline else ():
        needs = minimum(spec.gates, gate)
        if prompts < needs:
            raise PlanRefused(
                f"offline: gate {gate} needs {needs} prompts, but the golden set has {prompts}",
                hint="add prompts to it, or lower the gate's minimum",
            )


def refuse_hopeless(spec: Delivery, steps: tuple[Step, ...]) -> None:
    """Say no before anything is deployed to a stage whose gates cannot have their evidence in time."""
    limits = {StageName.SHADOW: spec.shadow, StageName.CANARY: spec.canary}
    for step in steps:
        stage = limits.get(step.stage)
        within = stage.within.total_seconds() if stage else float("inf")
        for gate in step.gates:
            if gate.seconds is not None and gate.seconds > within:
                raise PlanRefused(
                    f"{step.id}: gate {gate.gate} needs {gate.needs} requests, which take {gate.seconds:.0f} s "
                    f"at the stated traffic, but the stage ends after {within:.0f} s",
                    hint=f"raise `within` above {gate.seconds:.0f}s, or the weight, or lower the gate's minimum",
                )
