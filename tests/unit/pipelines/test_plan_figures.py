"""Figures of a plan: shares of the budget and of users, how long steps take and what is left, what an ending means."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from fakes.delivery.records import Delivery as Told
from fakes.delivery.world import a_spec

from pipelines.events.state import seconds_left, state_of
from pipelines.plan import gates
from pipelines.plan.gates import OFFLINE, budget_shares
from pipelines.run.regions import both_arms
from pipelines.spec.delivery import Delivery
from rollouts.model import RegionPhase, RegionState
from tidegate.core.errors import OutsideError

WAVES = ("[[a]]", "[[a], [b]]", "[[a, b], [c, d], [e]]")
WITHOUT = ({}, {"offline": ""}, {"shadow": ""}, {"canary": ""}, {"offline": "", "shadow": ""})


def laid_out(waves: str, without: dict[str, str]) -> Delivery:
    traffic = "traffic: {requests_per_second: 200, prompts: users.txt}"
    return a_spec(regions=f"regions: {{waves: {waves}, bake: 10s}}", traffic=traffic, **without)


@pytest.mark.parametrize(("waves", "without"), list(itertools.product(WAVES, WITHOUT)))
def test_all_parts_together_are_the_budget_and_no_more(waves: str, without: dict[str, str]) -> None:
    parts = budget_shares(laid_out(waves, without))
    assert sum(parts.values()) == pytest.approx(1)
    assert all(part > 0 for part in parts.values())


def test_the_golden_set_and_all_bakes_get_a_tenth_each() -> None:
    parts = budget_shares(laid_out("[[a, b], [c], [d]]", {}))
    assert parts[OFFLINE] == pytest.approx(0.1)
    # The last wave has no champion left to be compared with.
    bakes = {name: part for name, part in parts.items() if name.startswith("bake@")}
    assert set(bakes) == {"bake@1/a", "bake@1/b", "bake@2/c"}
    assert sum(bakes.values()) == pytest.approx(0.1)


def test_a_step_that_runs_takes_what_is_left_of_it() -> None:
    opened = Told().open()
    build, *rest = state_of(opened.events).steps
    story = state_of(opened.say("build", "started").events)
    expected = sum(step.expected_seconds for step in rest)
    assert seconds_left(story, opened.now + timedelta(seconds=1)) == build.expected_seconds - 1 + expected
    assert seconds_left(story, opened.now + timedelta(hours=1)) == expected


def test_once_something_failed_no_one_knows() -> None:
    delivery = Told().open().say("build", "started").say("build", "failed", "no memory", after=1)
    assert seconds_left(state_of(delivery.events), delivery.now) is None


def test_a_judge_sees_the_share_of_pairs_that_its_settings_say() -> None:
    judge = "  agreement: {min_similarity: 0.6}\n  judge: {endpoint: 'http://127.0.0.1:1/v1', model: m, sample: 10%}"
    spec = a_spec(agreement=judge)
    assert spec.shadow is not None
    seen = gates.traffic_of(spec, spec.shadow, 100)
    assert seen.arrivals("probe", judged=True).canary == pytest.approx(0.1)
    assert seen.arrivals("probe").canary == 1


def test_a_region_without_engines_has_no_arms_to_ask() -> None:
    state = RegionState(region="eu-west-1", phase=RegionPhase.EMPTY, entry="http://eu", problem="the proxy is down")
    with pytest.raises(OutsideError) as caught:
        both_arms(state)
    assert (caught.value.message, caught.value.detail) == (
        "eu-west-1: there is no stable engine",
        "the proxy is down",
    )
    assert "`tidegate fleet up` starts the champion" in str(caught.value)
