"""A plan is the whole way of a version, in order; one that could never decide is refused before it starts."""

from __future__ import annotations

import pytest
from fakes.world import CHALLENGER, CHAMPION, a_spec, a_version

from pipelines.errors import PlanRefused
from pipelines.model import Plan, StageName
from pipelines.plan import ENGINE_START_SECONDS, FINALIZE_SECONDS, SMOKE_SECONDS, make_plan
from pipelines.spec import Delivery
from tidegate.core.errors import ExitCode

ONE_REGION = "regions: {waves: [[eu-west-1]], bake: 10s}"
ONE_WAVE = "regions: {waves: [[eu-west-1, us-east-1]], bake: 10s}"


def plan_of(spec: Delivery, *, prompts: int = 12) -> Plan:
    return make_plan(spec, a_version(CHALLENGER), a_version(CHAMPION), prompts=prompts)


def ids(plan: Plan) -> list[str]:
    return [step.id for step in plan.steps]


def test_one_region_is_one_straight_way() -> None:
    assert ids(plan_of(a_spec(regions=ONE_REGION))) == [
        "build",
        "deploy@eu-west-1",
        "smoke@eu-west-1",
        "offline@eu-west-1",
        "shadow@eu-west-1",
        "canary@eu-west-1/10",
        "canary@eu-west-1/50",
        "promote@eu-west-1",
        "bake@1",
        "finalize",
    ]


def test_the_second_wave_starts_after_the_first_has_baked_and_is_not_asked_the_golden_set_again() -> None:
    plan = plan_of(a_spec())
    assert ids(plan)[9:] == [
        "deploy@us-east-1",
        "smoke@us-east-1",
        "shadow@us-east-1",
        "canary@us-east-1/10",
        "canary@us-east-1/50",
        "promote@us-east-1",
        "bake@2",
        "finalize",
    ]
    assert [step.wave for step in plan.steps] == [0] + [1] * 8 + [2] * 7 + [0]


def test_a_delivery_without_shadow_goes_from_the_golden_set_to_users() -> None:
    planned = ids(plan_of(a_spec(regions=ONE_REGION, shadow="")))
    assert "shadow@eu-west-1" not in planned
    assert planned.index("offline@eu-west-1") + 1 == planned.index("canary@eu-west-1/10")


def test_a_delivery_without_golden_set_and_canary_still_deploys_smokes_and_bakes() -> None:
    spec = a_spec(
        regions=ONE_REGION, offline="", canary="", traffic="traffic: {requests_per_second: 9, prompts: users.txt}"
    )
    assert ids(plan_of(spec, prompts=0)) == [
        "build", "deploy@eu-west-1", "smoke@eu-west-1", "shadow@eu-west-1", "promote@eu-west-1", "bake@1", "finalize",
    ]  # fmt: skip


def test_every_gate_says_what_it_needs_and_how_long_that_takes() -> None:
    by_id = {step.id: step for step in plan_of(a_spec()).steps}

    def needs(step: str) -> list[tuple[str, int, float | None]]:
        return [(gate.gate, gate.needs, gate.seconds) for gate in by_id[step].gates]

    assert needs("offline@eu-west-1") == [("quality", 12, None)]
    # Ten requests a second, all of them mirrored; one pair a second.
    assert needs("shadow@eu-west-1") == [("latency", 20, 20.0), ("errors", 20, 2.0), ("agreement", 10, 10.0)]
    assert needs("canary@eu-west-1/10") == [("latency", 20, 20.0), ("errors", 20, 20.0)]
    assert needs("canary@eu-west-1/50") == [("latency", 20, 4.0), ("errors", 20, 4.0)]
    assert by_id["smoke@eu-west-1"].gates == ()


def test_nobody_knows_how_long_a_gate_takes_when_no_traffic_is_stated() -> None:
    (canary, _) = [step for step in plan_of(a_spec(traffic="")).steps if step.stage is StageName.CANARY][:2]
    assert [(gate.needs, gate.seconds) for gate in canary.gates] == [(20, None), (20, None)]


def test_a_stage_takes_as_long_as_its_slowest_gate_and_at_least_its_minimum() -> None:
    (shadow,) = [step for step in plan_of(a_spec(regions=ONE_REGION)).steps if step.stage is StageName.SHADOW]
    assert shadow.expected_seconds == 20
    patient = a_spec(regions=ONE_REGION, shadow="  - shadow: {at_least: 90s, within: 2m}")
    (shadow,) = [step for step in plan_of(patient).steps if step.stage is StageName.SHADOW]
    assert shadow.expected_seconds == 90


def test_regions_of_one_wave_take_the_time_of_one() -> None:
    region = ENGINE_START_SECONDS + SMOKE_SECONDS + 20 + 20 + 4 + SMOKE_SECONDS
    once = ENGINE_START_SECONDS + FINALIZE_SECONDS
    golden_set = 12 * 0.5
    assert plan_of(a_spec(regions=ONE_REGION)).expected_seconds == once + region + golden_set + 10
    assert plan_of(a_spec(regions=ONE_WAVE)).expected_seconds == once + region + golden_set + 10
    assert plan_of(a_spec()).expected_seconds == once + 2 * region + golden_set + 2 * 10


def test_a_canary_that_could_not_get_its_requests_in_time_is_refused_with_what_to_change() -> None:
    spec = a_spec(traffic="traffic: {requests_per_second: 0.1}")
    with pytest.raises(PlanRefused) as caught:
        plan_of(spec)
    assert caught.value.message == (
        "shadow@eu-west-1: gate errors needs 20 requests, which take 200 s at the stated traffic, "
        "but the stage ends after 120 s"
    )
    assert caught.value.hint == "raise `within` above 200s, or the weight, or lower the gate's minimum"
    assert caught.value.exit_code is ExitCode.USAGE


def test_the_smallest_weight_is_what_decides_whether_a_canary_has_enough_users() -> None:
    spec = a_spec(canary="  - canary: {weights: [1, 50], within: 1m}", traffic="traffic: {requests_per_second: 10}")
    with pytest.raises(PlanRefused, match=r"canary@eu-west-1/1: gate latency needs 20 requests, which take 200 s"):
        plan_of(spec)


def test_a_golden_set_that_is_too_small_for_its_gate_is_refused() -> None:
    with pytest.raises(PlanRefused) as caught:
        plan_of(a_spec(), prompts=9)
    assert caught.value.message == "offline: gate quality needs 10 prompts, but the golden set has 9"
    assert plan_of(a_spec(), prompts=10)


def test_a_plan_names_both_versions_and_all_regions() -> None:
    plan = plan_of(a_spec())
    assert (plan.name, plan.version.version, plan.champion.version) == ("support-llm", CHALLENGER, CHAMPION)
    assert plan.regions == ("eu-west-1", "us-east-1")
