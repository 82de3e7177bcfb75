"""A delivery asks as many gates of a kind as it wants; each has a name, and its name is what everything else says."""

from __future__ import annotations

import pytest
from fakes.delivery.world import a_spec
from fakes.metrics.asked import plan_of

from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch, PodEvidence
from gates.model import GateOutcome
from gates.planning.forecast import forecasts
from gates.reports.gate_file import GateFile
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.spec import GATE_KINDS, Gates
from gates.traffic import Exposure
from pipelines.doctor import asked_of_prometheus
from pipelines.plan.planner import steps_of
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import SpecError, parse_spec

TWO = {
    "latency": {"max_increase": "50%", "min_requests": 20},
    "e2e-p50": {"kind": "latency", "metric": "e2e", "quantile": 0.5, "max_increase": "50%", "min_requests": 20},
}


def test_each_has_its_settings_its_share_of_the_budget_and_its_forecast() -> None:
    plan = plan_of({"errors": {}, **TWO, "a-first": {"kind": "errors"}})
    assert plan.gates == ("latency", "e2e-p50", "errors", "a-first")
    assert plan.settings["e2e-p50"] == LatencyGate(metric="e2e", quantile=0.5, max_increase=0.5, min_requests=20)
    assert plan.conditions.rollback == pytest.approx(0.01 / 4)
    told = forecasts(plan_of(TWO), Exposure(requests_per_second=50, percent=10, within_seconds=1800))
    assert [each.gate for each in told] == ["latency", "e2e-p50"]
    assert all(each.reachable for each in told)


def test_the_one_that_fails_is_told_by_its_name() -> None:
    test = SequentialTest(plan_of(TWO))
    fast = tuple(0.1 * 1.07**at for at in range(20))
    slow = tuple(4 * seconds for seconds in fast)
    for at in range(1, 40):
        arms = [(ArmName.STABLE, fast), (ArmName.CANARY, slow)]
        pods = tuple(PodEvidence(arm=arm, requests=20, ttft=fast, e2e=times) for arm, times in arms)
        test.take(Batch(time=10.0 * at, arms=pods))
    assert {verdict.gate: verdict.outcome for verdict in test.verdicts()} == {
        "latency": GateOutcome.PASS,
        "e2e-p50": GateOutcome.FAIL,
    }


def test_a_plan_is_written_down_with_the_kind_and_one_without_such_names_as_ever() -> None:
    plan = plan_of(TWO)
    text = plan.model_dump_json()
    assert '"named":{"e2e-p50":{"kind":"latency","metric":"e2e"' in text
    assert AnalysisPlan.model_validate_json(text) == plan
    assert list(plan_of({"latency": {}}).model_dump(mode="json")) == [
        *("method", "latency", "errors", "agreement", "judge", "burn_rate", "drift", "throughput", "cost", "ratio"),
        *("quantile", "mean", "query"),
        *("sources", "rollback", "accept", "temper", "mirrored"),
    ]


def read(gates: str, canary: str = "latency") -> Delivery:
    spec = a_spec(latency=gates, canary=f"  - canary: {{weights: [10, 50], within: 5m, gates: [{canary}]}}")
    return parse_spec(spec.model_dump_json(by_alias=True, exclude_unset=True), Delivery, file="delivery.yaml")


@pytest.mark.parametrize(
    ("gates", "canary", "problem"),
    [
        (
            "  latncy: {max_increase: 20%}",
            "errors",
            "gates.latncy: found an unknown key; expected latency (the nearest",
        ),
        (
            "  mine: {kind: latncy}",
            "errors",
            "gates.mine: found kind latncy; expected latency (the nearest known name)",
        ),
        ("  Mine!: {kind: latency}", "errors", "gates.Mine!: found the name 'Mine!'; expected a name of lower-case"),
        (
            "  mine: {kind: latency}",
            "myne",
            "canary.gates[0]: found 'myne' without settings; expected mine (the nearest",
        ),
        (
            "  golden: {kind: quality}",
            "golden",
            "canary.gates[0]: found 'golden' of kind quality; expected a gate of kind latency, errors",
        ),
        (
            "  golden: {kind: quality}",
            "errors",
            "gates.golden: found a second gate of kind quality; expected one of this kind: evidence is made for the "
            "settings of 'quality'",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_place(gates: str, canary: str, problem: str) -> None:
    with pytest.raises(SpecError) as raised:
        read(gates, canary)
    assert problem in str(raised.value)


def test_a_file_of_gates_can_name_them_too() -> None:
    text = "apiVersion: tidegate/v1\nkind: Gates\ngates: {slow: {kind: latency}, errors: {}}\nsources: {slow: [proxy]}"
    plan = parse_spec(text, GateFile, file="gates.yaml").terms()
    assert plan.gates == ("slow", "errors")
    assert (plan.sources_of("slow"), plan.sources_of("errors")) == (("proxy",), ("users",))
    with pytest.raises(SpecError, match=r"sources\.slw: found a gate without settings"):
        parse_spec(text.replace("sources: {slow", "sources: {slw"), GateFile, file="gates.yaml")


def test_a_name_may_be_the_word_of_another_kind() -> None:
    given = {"latency": {"kind": "latency"}, "quality": {"kind": "errors"}, "errors": TWO["e2e-p50"]}
    gates = Gates.model_validate(given)
    kinds = {gate: gates.kind_of(gate).name for gate in gates.asked}
    assert kinds == {"latency": "latency", "errors": "latency", "quality": "errors"}
    assert Gates.model_validate_json(gates.model_dump_json(exclude_unset=True)) == gates
    plan = plan_of(given)
    assert plan.gates == ("latency", "errors", "quality") and plan.settings["errors"].quantile == 0.5  # type: ignore[attr-defined]
    assert AnalysisPlan.model_validate_json(plan.model_dump_json()) == plan
    slow = "  latency: {}\n  drift: {kind: latency, min_requests: 20}"
    assert read(slow, "drift").gates.kind_of("drift").name == "latency"
    with pytest.raises(SpecError, match=r"gates\.drift: found kind latncy"):
        read(slow.replace("kind: latency", "kind: latncy"), "drift")


def test_editors_complete_the_settings_of_each_kind() -> None:
    schema = Gates.model_json_schema()
    kinds = [schema["$defs"][each["$ref"].rsplit("/", 1)[1]] for each in schema["additionalProperties"]["oneOf"]]
    found = {kind["properties"]["kind"]["const"]: kind for kind in kinds}
    assert "quantile" in found["latency"]["properties"] and "kind" in found["latency"]["required"]
    assert set(found) == set(GATE_KINDS)


NAMED = "  slow: {kind: latency, max_increase: 20%, min_requests: 20}\n  latency: {max_increase: 20%, min_requests: 20}"


def test_plans_and_questions_to_prometheus_name_them() -> None:
    spec = read(NAMED, "slow, errors")
    canary = next(step for step in steps_of(spec, prompts=20) if step.stage == "canary")
    assert [gate.gate for gate in canary.gates] == ["slow", "errors"]
    asked = [question.asked_by for question in asked_of_prometheus(spec, "eu-west-1")]
    assert "gate slow" in asked
