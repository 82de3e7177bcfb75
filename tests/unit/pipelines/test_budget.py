"""One error budget for the whole delivery: however it is laid out, its parts never exceed it."""

from __future__ import annotations

import itertools

import pytest
from fakes.delivery.world import a_spec

from pipelines.plan.gates import OFFLINE, budget_shares
from pipelines.spec.delivery import Delivery

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


@pytest.mark.parametrize("waves", WAVES)
def test_every_trial_of_a_stage_has_the_same_part(waves: str) -> None:
    spec = laid_out(waves, {})
    parts = {name: part for name, part in budget_shares(spec).items() if name.startswith(("shadow@", "canary@"))}
    assert set(parts) == {f"{stage}@{region}" for stage in ("shadow", "canary") for region in spec.regions.names}
    assert len(set(parts.values())) == 1


def test_the_golden_set_and_all_bakes_get_a_tenth_each() -> None:
    parts = budget_shares(laid_out("[[a, b], [c], [d]]", {}))
    assert parts[OFFLINE] == pytest.approx(0.1)
    # The last wave has no champion left to be compared with.
    bakes = {name: part for name, part in parts.items() if name.startswith("bake@")}
    assert set(bakes) == {"bake@1/a", "bake@1/b", "bake@2/c"}
    assert sum(bakes.values()) == pytest.approx(0.1)


def test_what_is_not_asked_leaves_its_part_to_the_others() -> None:
    every = budget_shares(laid_out("[[a]]", {}))["canary@a"]
    assert budget_shares(laid_out("[[a]]", {"shadow": ""}))["canary@a"] > every
    assert budget_shares(laid_out("[[a]]", {"offline": ""}))["canary@a"] > every
