"""A new kind of gate is one class and one line in the registry: everything else asks the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pytest
import yaml
from fakes.delivery.world import a_spec

from gates.analyses.base import Conditions, ExpectedFlow, MetricTest, StageUse, TestedGate
from gates.evidence.batch import ArmName, Batch, PodEvidence, Source
from gates.model import GateOutcome
from gates.planning.forecast import forecasts, with_proposals
from gates.reports.gate_file import GateFile, evidence_section
from gates.sequential_test import AnalysisPlan, SequentialTest, analysis_plan_of
from gates.spec import GATE_KINDS, gates_section, kinds_from_batches, kinds_of_stage, stage_sources
from gates.stats.binary import FailureProcess
from gates.stats.e_process import Array
from gates.traffic import ArrivalRates, Assumptions, Exposure, Flow, WholeCounts
from gates.transcript import BatchLine, TermsLine, VerdictsLine, read, replay, written
from pipelines.plan.planner import steps_of
from pipelines.spec.delivery import Delivery
from tidegate.core.model import SpecModel
from tidegate.core.spec import SpecError, parse_spec


class RefusalsGate(SpecModel):
    """Refused requests alone may be `max_increase` more at most."""

    max_increase: float = 0.02
    min_requests: int = 30


class RefusalsTest(MetricTest):
    """Refused requests of both arms."""

    def __init__(self, gate: RefusalsGate) -> None:
        super().__init__("refused", needed=gate.min_requests)
        self.process = FailureProcess(max_increase=gate.max_increase, temper=False)
        self._counts = {ArmName.STABLE: np.zeros(2), ArmName.CANARY: np.zeros(2)}

    def take(self, batch: Batch, seconds: float) -> None:
        now = {
            arm: sum(np.asarray([p.requests - p.refused, p.refused], float) for p in batch.arms if p.arm is arm)
            for arm in ArmName
        }
        self._counts = {arm: self._counts[arm] + now[arm] for arm in ArmName}
        self.process.feed(now[ArmName.CANARY], now[ArmName.STABLE][None, :], seconds)

    def restart(self) -> None:
        self.process.restart_acceptance()

    @property
    def seen(self) -> int:
        return int(self._counts[ArmName.CANARY].sum())

    def describe(self) -> str:
        return f"canary refused {self._counts[ArmName.CANARY][1]:g}, stable {self._counts[ArmName.STABLE][1]:g}"

    def numbers(self) -> Mapping[str, float]:
        return {"canary_refused_requests": float(self._counts[ArmName.CANARY][1])}


def expected_refusals(gate: RefusalsGate, arrivals: ArrivalRates, worse: Array, assumed: Assumptions) -> Flow:
    """Nobody is refused but by canaries that are worse."""
    process = FailureProcess(max_increase=gate.max_increase, temper=False, leading=worse.shape)
    canary, stable = WholeCounts((*worse.shape, 2)), WholeCounts((*worse.shape, 1, 2))
    shares = np.stack([1 - worse, worse], axis=-1)
    none = np.broadcast_to([1.0, 0.0], (*worse.shape, 1, 2))

    def feed(seconds: float) -> None:
        came = canary.of(shares * arrivals.canary * seconds)
        process.feed(came, stable.of(none * arrivals.stable * seconds), seconds)

    return Flow(process, feed)


class RefusalsKind(TestedGate[RefusalsGate]):
    """All that tidegate must know of it."""

    name = "refusals"
    spec = settings = RefusalsGate
    stages = (StageUse("canary", ("proxy",)),)
    from_batches = True
    scale = "points"
    sample = "min_requests"
    margin = ("max_increase", 0.5)

    def tests(
        self, settings: RefusalsGate, source: Source, conditions: Conditions
    ) -> Iterator[tuple[float, MetricTest]]:
        yield 1, RefusalsTest(settings)

    def flows(self, settings: RefusalsGate, *, paired: bool, temper: bool) -> Iterator[ExpectedFlow]:
        yield partial(expected_refusals, settings)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GATE_KINDS, RefusalsKind.name, RefusalsKind())


def seconds_of(refused: int, *, until: int = 60) -> list[Batch]:
    arms = [(ArmName.STABLE, 90, 0), (ArmName.CANARY, 10, refused)]
    pods = tuple(PodEvidence(arm=arm, requests=requests, refused=no) for arm, requests, no in arms)
    return [Batch(time=10.0 * at, arms=pods) for at in range(1, until + 1)]


def verdict_after(batches: list[Batch]) -> GateOutcome:
    test = SequentialTest(AnalysisPlan.model_validate({"refusals": RefusalsGate()}))
    for batch in batches:
        test.take(batch)
    (verdict,) = test.verdicts()
    assert verdict.gate == "refusals"
    assert verdict.reason.startswith("canary refused")
    return verdict.outcome


def test_it_is_judged_next_to_the_others() -> None:
    assert verdict_after(seconds_of(0)) is GateOutcome.PASS
    assert verdict_after(seconds_of(3)) is GateOutcome.FAIL


def test_it_has_its_share_of_the_budget_and_its_place_in_the_transcript() -> None:
    plan = AnalysisPlan.model_validate({"refusals": {"max_increase": 0.05}, "errors": {}})
    assert plan.gates == ("errors", "refusals")
    test = SequentialTest(plan)
    lines = [TermsLine(trial="canary@eu", terms=plan)]
    for batch in seconds_of(0, until=5):
        test.take(batch)
        lines.append(BatchLine(step="canary@eu/5", batch=batch))
    lines.append(VerdictsLine(step="canary@eu/5", verdicts=test.verdicts()))
    texts = [written(line) + "\n" for line in lines]
    assert '"refusals":{"max_increase":0.05,"min_requests":30}' in texts[0]
    assert replay(read(texts, file="t")) == []


def test_it_is_forecast_and_gets_advice() -> None:
    plan = AnalysisPlan.model_validate({"refusals": {}})
    exposure = Exposure(requests_per_second=50, percent=10, within_seconds=1800)
    (told,) = forecasts(plan, exposure)
    assert told.reachable and told.scale == "points" and told.regression_share == 0.02
    assert told.canary_requests_to_pass and told.canary_requests_to_fail
    late = exposure.model_copy(update={"within_seconds": 20})
    (told,) = forecasts(plan, late)
    assert not told.reachable
    assert any("max_increase" in remedy for remedy in with_proposals(plan, told, late, Assumptions()).remedy)


def test_a_delivery_and_a_file_of_gates_can_ask_it() -> None:
    assert "refusals" in kinds_of_stage("canary") and "refusals" in kinds_from_batches()

    class Deliveries(Delivery):
        gates: gates_section()  # type: ignore[valid-type]

    class Files(GateFile):
        gates: evidence_section()  # type: ignore[valid-type]

    given = a_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    given["gates"]["refusals"] = {"max_increase": 0.05}
    canary = next(stage["canary"] for stage in given["stages"] if "canary" in stage)
    canary["gates"] = ["latency", "refusals"]
    spec = Deliveries.model_validate(given)
    sources = stage_sources("canary", spec.gates)
    assert sources["refusals"] == ("proxy",)
    plan = analysis_plan_of(spec.gates, spec.canary.gates, sources=sources, share=0.5)  # type: ignore[union-attr]
    assert plan.of(RefusalsGate) == RefusalsGate(max_increase=0.05)
    planned = [gate.gate for step in steps_of(spec, prompts=20) for gate in step.gates if step.stage == "canary"]
    assert "refusals" in planned
    asked = parse_spec("apiVersion: tidegate/v1\nkind: Gates\ngates: {refusals: {}}\n", Files, file="gates.yaml")
    assert asked.terms().gates == ("refusals",)


def test_a_stage_that_cannot_ask_it_says_so() -> None:
    given = a_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    given["stages"] = [{"shadow": {"gates": ["refusals"]}}]
    with pytest.raises(
        SpecError, match=r"gates\[0\]: found 'refusals'; expected a gate of kind latency, errors, agreement, judge"
    ):
        parse_spec(yaml.safe_dump(given), Delivery, file="delivery.yaml")
    with pytest.raises(SpecError, match="refusal"):
        parse_spec("apiVersion: tidegate/v1\nkind: Gates\ngates: {refusal: {}}\n", GateFile, file="gates.yaml")
