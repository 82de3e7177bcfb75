"""The stage that brings the same load to both versions: what it sends where, and how it says no."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.delivery.world import CHALLENGER, CHALLENGER_URL, CHAMPION, CHAMPION_URL, World, a_spec

from pipelines.errors import Stopped
from pipelines.model import Ending, PlanStep, StageName
from pipelines.plan.gates import budget_shares
from pipelines.run.stages import STAGES
from pipelines.spec.delivery import Delivery
from tidegate.testing import an_engine

HERE = "eu-west-1"
COST = "\ncost: {per_engine_hour: 3.6}"


def spec_with(load: str = "{arms: serving}", *, more: str = COST, gates: str = "throughput: {}") -> Delivery:
    return a_spec(
        offline=f"  - offline: {{dataset: golden.jsonl}}\n  - load: {load}",
        quality=f"  quality: {{max_drop: 0.1, min_prompts: 10}}\n  {gates}",
        traffic=f"traffic: {{requests_per_second: 200}}{more}",
    )


async def a_world(folder: Path, spec: Delivery | None = None) -> World:
    """Every region serves the champion; eu-west-1 has the challenger on trial."""
    world = World(folder, spec or spec_with())
    for fleet in world.fleets.values():
        await fleet.deploy(an_engine(CHAMPION))
    await world.fleets[HERE].deploy(an_engine(CHALLENGER))
    return world


def the_step(world: World) -> PlanStep:
    return next(step for step in world.plan.steps if step.stage is StageName.LOAD)


async def run(world: World) -> None:
    context = world.context()
    try:
        await STAGES[StageName.LOAD](context, the_step(world))
    finally:
        await context.journal.written()


async def stopped(world: World) -> Stopped:
    with pytest.raises(Stopped) as caught:
        await run(world)
    return caught.value


def test_it_is_asked_once_in_the_first_region_before_shadow_and_has_its_share_of_the_budget(tmp_path: Path) -> None:
    world = World(tmp_path, spec_with())
    ids = [step.id for step in world.plan.steps]
    assert [each for each in ids if each.startswith("load")] == ["load@eu-west-1"]
    assert ids.index("load@eu-west-1") == ids.index("shadow@eu-west-1") - 1
    shares = budget_shares(world.spec)
    assert shares["load@eu-west-1"] == shares["canary@us-east-1"]
    assert sum(shares.values()) == pytest.approx(1)


async def test_a_version_as_fast_passes_and_no_user_meets_the_load(tmp_path: Path) -> None:
    world = await a_world(tmp_path)
    await run(world)
    assert {order.url for order in world.loads.orders} == {CHAMPION_URL, CHALLENGER_URL}
    routes = world.fleets[HERE].proxy.swaps
    assert (max(route.weight for route in routes), max(route.mirror for route in routes)) == (0, 0)


@pytest.mark.long
async def test_half_the_throughput_is_stopped_and_the_figures_are_told(tmp_path: Path) -> None:
    world = await a_world(tmp_path)
    world.loads.speeds[CHALLENGER_URL] = 500.0
    stop = await stopped(world)
    assert stop.ending is Ending.ROLLED_BACK
    assert stop.reason.startswith("gate throughput: canary serves ")
    told = next(event.message for event in world.recorder.events if "TTFT p95" in event.message)
    canary, stable = (float(each.replace(",", "")) for each in re.findall(r"([\d,.]+) tokens/s", told))
    assert canary / stable == pytest.approx(0.5, abs=0.03)
    assert told.count("TTFT p95") == 2


async def test_both_arms_get_the_same_requests_and_a_coin_says_who_is_first(tmp_path: Path) -> None:
    world = await a_world(
        tmp_path, spec_with("{arms: serving, block: 5s}", gates="throughput: {max_drop: 5%, min_blocks: 20}")
    )
    await run(world)
    pairs = list(zip(world.loads.orders[::2], world.loads.orders[1::2], strict=False))
    assert all(
        first.seed == second.seed and {first.role, second.role} == {"stable", "canary"} for first, second in pairs
    )
    assert len({first.seed for first, _ in pairs}) == len(pairs)
    firsts = Counter(first.role for first, _ in pairs)
    assert min(firsts["stable"], firsts["canary"]) >= 4


async def test_a_resumed_stage_counts_again_what_speaks_for_the_canary(tmp_path: Path) -> None:
    world = await a_world(tmp_path)
    await run(world)
    before = len(world.loads.orders)
    await run(world)
    assert len(world.loads.orders) >= before + 4


AT_FAULT: dict[str, tuple[Callable[[World], object], Ending, str]] = {
    "a stable that serves nothing": (
        lambda world: world.loads.speeds.pop(CHAMPION_URL), Ending.FAILED, "stable answered none of"
    ),
    "a canary that serves nothing": (
        lambda world: world.loads.speeds.pop(CHALLENGER_URL), Ending.ROLLED_BACK, "-100.0%"
    ),
    "a canary that dies under load": (
        lambda world: world.fleets[HERE].kill(CHALLENGER, last_words="no memory"), Ending.ROLLED_BACK, "with: no memory"
    ),
    "load that cannot be brought": (
        lambda world: setattr(world.loads, "gone", True), Ending.FAILED, "ended by itself"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", AT_FAULT)
async def test_only_what_the_canary_does_is_told_of_it(tmp_path: Path, fault: str) -> None:
    given, ending, reason = AT_FAULT[fault]
    world = await a_world(tmp_path)
    given(world)
    stop = await stopped(world)
    assert (stop.ending, reason in stop.reason) == (ending, True), stop.reason


async def test_a_whole_delivery_goes_through_it(tmp_path: Path) -> None:
    world = World(tmp_path, spec_with())
    assert (await world.deliver()).ending is Ending.DELIVERED
    assert "load@eu-west-1" in world.said("done")
