"""A plan is the whole way of a version, in order; one that could never decide is refused before it starts."""

from __future__ import annotations

import re

import pytest
import yaml
from fakes.delivery.world import CHALLENGER, CHAMPION, a_spec, a_version

from pipelines.errors import PlanRefused
from pipelines.model import GatePlan, Plan, StageName
from pipelines.plan.planner import ENGINE_START_SECONDS, FINALIZE_SECONDS, SMOKE_SECONDS, make_plan
from pipelines.spec.delivery import Delivery
from tidegate.core.errors import ExitCode
from tidegate.core.spec import parse_spec

ONE_REGION = "regions: {waves: [[eu-west-1]], bake: 10s}"
ONE_WAVE = "regions: {waves: [[eu-west-1, us-east-1]], bake: 10s}"


def plan_of(spec: Delivery, *, prompts: int = 12) -> Plan:
    return make_plan(spec, a_version(CHALLENGER), a_version(CHAMPION), prompts=prompts)


def ids(plan: Plan) -> list[str]:
    return [step.id for step in plan.steps]


def test_a_delivery_without_golden_set_and_canary_still_deploys_smokes_and_bakes() -> None:
    spec = a_spec(
        regions=ONE_REGION, offline="", canary="", traffic="traffic: {requests_per_second: 100, prompts: users.txt}"
    )
    assert ids(plan_of(spec, prompts=0)) == [
        "build", "deploy@eu-west-1", "smoke@eu-west-1", "shadow@eu-west-1", "promote@eu-west-1", "bake@1", "finalize",
    ]  # fmt: skip


def gates_of(plan: Plan, step: str) -> dict[str, GatePlan]:
    return {gate.gate: gate for each in plan.steps if each.id == step for gate in each.gates}


def test_every_source_that_counts_for_a_gate_is_forecast() -> None:
    errors = gates_of(plan_of(a_spec()), "canary@eu-west-1/10")["errors"]
    assert [forecast.source for forecast in errors.forecasts] == ["proxy", "users"]


def test_more_regions_mean_smaller_shares_of_the_budget_and_later_fails() -> None:
    regions = ", ".join(f"[region-{number}]" for number in range(1, 21))
    many = plan_of(a_spec(regions=f"regions: {{waves: [{regions}], bake: 10s}}"))
    few = gates_of(plan_of(a_spec()), "canary@eu-west-1/10")["errors"].forecasts[0]
    crowd = gates_of(many, "canary@region-1/10")["errors"].forecasts[0]
    assert (crowd.canary_requests_to_fail or 0) > (few.canary_requests_to_fail or 0)
    # The chance to accept a bad version is each gate's own.
    assert crowd.canary_requests_to_pass == few.canary_requests_to_pass


def test_a_stage_takes_as_long_as_its_slowest_gate_and_at_least_its_minimum() -> None:
    plan = plan_of(a_spec(regions=ONE_REGION))
    (shadow,) = [step for step in plan.steps if step.stage is StageName.SHADOW]
    assert shadow.expected_seconds == max(gate.seconds or 0 for gate in shadow.gates)
    patient = a_spec(regions=ONE_REGION, shadow="  - shadow: {at_least: 90s, within: 2m}")
    (shadow,) = [step for step in plan_of(patient).steps if step.stage is StageName.SHADOW]
    assert shadow.expected_seconds == 90


def test_regions_of_one_wave_take_the_time_of_one() -> None:
    one = plan_of(a_spec(regions=ONE_REGION))
    once = ENGINE_START_SECONDS + FINALIZE_SECONDS + 12 * 0.5
    region = sum(step.expected_seconds for step in one.steps if step.region) - 12 * 0.5
    assert region > ENGINE_START_SECONDS + 2 * SMOKE_SECONDS
    assert one.expected_seconds == once + region + 10
    assert plan_of(a_spec(regions=ONE_WAVE)).expected_seconds == once + region + 10
    assert plan_of(a_spec()).expected_seconds == once + 2 * region + 2 * 10


def refused(spec: Delivery) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        plan_of(spec)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


@pytest.mark.long
def test_a_stage_that_could_not_pass_a_healthy_version_in_time_is_refused_with_what_to_change() -> None:
    refusal = refused(a_spec(shadow="", traffic="traffic: {requests_per_second: 8}"))
    assert re.fullmatch(
        r"canary@eu-west-1/10: gate latency needs about \d+ requests to see that a healthy version is fine, "
        r"which take [0-9]+m at the stated traffic, but the stage ends after 5m; the same is true of canary@.*",
        refusal.message,
    )
    assert re.fullmatch(
        r"one of: `canary: \{within: \d+m\}` \(half pass within \d+m\)",
        refusal.hint or "",
    )


LATE_CANARY = "  - canary: {weights: [1], within: 2m, gates: [latency]}"
TOO_LATE = {
    "one gate": {"shadow": "", "canary": LATE_CANARY},
    "a gate that shadow can ask": {"canary": "  - canary: {weights: [1, 40], within: 3m, gates: [latency, errors]}"},
    "few pairs": {"shadow": "  - shadow: {pairs_per_second: 0.05, at_least: 10s, within: 2m}"},
}


@pytest.mark.parametrize("lines", TOO_LATE.values(), ids=TOO_LATE)
def test_every_change_that_is_proposed_is_enough_as_it_is_written(lines: dict[str, str]) -> None:
    spec = a_spec(**lines)
    refusal = refused(spec)
    assert len(refusal.proposals) >= 2, refusal.hint
    for proposal in refusal.proposals:
        assert f"`{proposal.line}`" in (refusal.hint or "")
        plan = plan_of(with_lines(spec, proposal.line))
        stage = refusal.message.partition("@")[0]
        slowest = max(gate.seconds or 0 for step in plan.steps if step.stage == stage for gate in step.gates)
        assert slowest == proposal.seconds_to_pass


def with_lines(spec: Delivery, line: str) -> Delivery:
    """The spec with what somebody has written into it."""
    written = yaml.safe_load(f"{{{line}}}")
    document = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for stage in document["stages"]:
        (name,) = stage
        stage[name] |= written.get(name, {})
    return parse_spec(yaml.safe_dump(document), Delivery, file="delivery.yaml")


def test_of_the_weights_of_the_spec_those_are_proposed_that_would_do() -> None:
    refusal = refused(a_spec(shadow="", canary="  - canary: {weights: [1, 30, 45], within: 2m, gates: [latency]}"))
    assert "canary: {weights: [30, 45]}" in [each.line for each in refusal.proposals]


def test_likeness_that_no_healthy_version_has_is_refused_whatever_the_traffic() -> None:
    refusal = refused(a_spec(agreement="  agreement: {min_similarity: 0.95, min_pairs: 10}"))
    assert refusal.message == (
        "shadow@eu-west-1: gate agreement would never pass even a healthy version: what it asks for cannot be proven; "
        "the same is true of shadow@us-east-1 agreement"
    )


def test_a_golden_set_that_is_too_small_for_its_gate_is_refused() -> None:
    with pytest.raises(PlanRefused) as caught:
        plan_of(a_spec(), prompts=9)
    assert caught.value.message == "offline: gate quality needs 10 prompts, but the golden set has 9"
    assert plan_of(a_spec(), prompts=10)
