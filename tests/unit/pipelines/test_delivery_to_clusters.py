"""A delivery through Argo Rollouts: two clusters, wave after wave; every region gets it or none does."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from fakes.clusters.region import NAME, NAMESPACE, PODS_OF_OTHERS, Endpoints, moved_in
from fakes.clusters.world import ClusterWorld, demo_on_clusters
from fakes.delivery.world import CHALLENGER, CHAMPION
from fakes.kube.requests import WRITES

from pipelines.model import Ending
from rollouts.kube.resources import LEASES
from rollouts.manifests.conventions import lease
from rollouts.model import RegionPhase
from tidegate.core.errors import ExitCode
from tidegate.testing import START

REGIONS = ("eu-west-1", "us-east-1")
EVERYWHERE = dict.fromkeys(REGIONS, CHALLENGER)
NOWHERE = dict.fromkeys(REGIONS, CHAMPION)


@pytest.fixture
def world(tmp_path: Path) -> ClusterWorld:
    return ClusterWorld(tmp_path, demo_on_clusters(*((region,) for region in REGIONS)))


async def test_the_demo_reaches_every_region_wave_after_wave_and_the_champion_stays_warm(world: ClusterWorld) -> None:
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.DELIVERED, ExitCode.DELIVERED), result.reason
    assert world.stable_versions() == EVERYWHERE
    planned = [step.id for step in world.plan.steps]
    assert world.said("started") == ["delivery", *planned]
    assert world.said("done") == planned
    assert world.registry.champion == CHALLENGER
    for region in world.regions.values():
        assert region.splits == [(0, 0), (0, 100), (0, 0), (50, 0), (0, 0)], region.region
        state = await region.fleet.observe()
        assert state.previous
        assert (state.previous.version, state.previous.ready) == (CHAMPION, True)


@pytest.mark.parametrize("loses", [0.0, math.inf], ids=["hears", "loses writes"])
async def test_a_region_where_it_fails_takes_the_earlier_ones_back(world: ClusterWorld, loses: float) -> None:
    last = REGIONS[-1]
    for region in world.regions.values():
        region.simulation.loses_writes_within = loses
    world.when(f"canary@{last}/50", "started", lambda: world.evidence.serves("canary", CHALLENGER, failed=0.5))
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.ROLLED_BACK, ExitCode.ROLLED_BACK)
    assert result.reason.startswith(f"canary@{last}/50: gate errors: ")
    assert [step for step in world.said("done") if step.startswith("promote")] == [
        f"promote@{region}" for region in REGIONS[:-1]
    ]
    assert world.stable_versions() == NOWHERE
    assert {step for step in world.said("done") if step.startswith("undo")} == {f"undo@{name}" for name in REGIONS}
    woken = {event.step for event in world.recorder.events if "was woken by another write" in event.message}
    assert {f"canary@{last}/50", f"undo@{last}"} <= woken if loses else not woken
    assert world.registry.champion == CHAMPION
    for region in world.regions.values():
        state = await region.fleet.observe()
        assert (state.phase, state.weight, state.mirror, state.problem) == (RegionPhase.STEADY, 0, 0, None)
        assert region.splits[-1] == (0, 0)


async def test_a_dead_controller_holds_nobody_on_a_canary_that_failed(world: ClusterWorld) -> None:
    region = world.regions[REGIONS[0]]
    step = f"canary@{region.region}/50"

    def fail() -> None:
        region.simulation.controller_down = True
        world.evidence.serves("canary", CHALLENGER, failed=0.5)

    world.when(step, "traffic", fail)
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.ROLLED_BACK, ExitCode.ROLLED_BACK), result.reason
    verdict = next(event for event in world.recorder.events if event.data.get("outcome") == "fail")
    assert region.splits[-1] == (0, 0)
    assert region.split_at[-1] - (verdict.at - START).total_seconds() < 1
    undo = f"undo@{region.region}"
    told = next(event.message for event in world.recorder.events if (event.step, event.kind) == (undo, "done"))
    assert told.startswith(f"{region.region} serves version {CHAMPION}; all users are on version {CHAMPION}, and")
    assert "the Argo Rollouts controller has not reacted" in told
    assert told.endswith((await region.fleet.observe()).problem or "?")
    assert world.said("failed") == [step]


async def test_what_a_region_takes_back_by_itself_ends_the_delivery_everywhere(world: ClusterWorld) -> None:
    """A region that is cut off from the one who delivers still has its own analysis."""
    region = world.regions[REGIONS[1]]
    world.when(f"canary@{region.region}/50", "traffic", lambda: region.abort("metric availability burns"))
    result = await world.deliver()
    assert result.ending is Ending.ROLLED_BACK
    assert "was aborted in the region itself" in result.reason
    assert world.stable_versions() == NOWHERE


async def test_objects_of_others_in_any_region_end_it_before_anything_is_written(world: ClusterWorld) -> None:
    occupied = world.regions[REGIONS[1]]
    moved_in(occupied.cluster, NAME, NAMESPACE)
    await world.time.sleep(60)
    endpoints = Endpoints(occupied.cluster)
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.FAILED, ExitCode.USAGE)
    for name in (f"Service {NAME}-stable", f"HTTPRoute {NAME}", f"Rollout {NAME}"):
        assert f"{name} in {NAMESPACE} is not tidegate's (managed by Helm release chat" in result.reason
    for region in world.regions.values():
        assert [call for call in region.api.calls if call.verb in WRITES] == []
    assert (endpoints.of(f"{NAME}-stable"), endpoints.lost) == (PODS_OF_OTHERS, [])


async def test_a_region_that_is_away_for_a_whole_stage_is_waited_for(world: ClusterWorld) -> None:
    region = world.regions[REGIONS[1]]

    def go_away() -> None:
        region.api.vanish()
        world.time.call_later(500, region.api.come_back)

    world.when(f"canary@{region.region}/50", "traffic", go_away)
    result = await world.deliver()
    assert result.ending is Ending.DELIVERED, result.reason
    assert world.time.elapsed > 500
    assert world.stable_versions() == EVERYWHERE
    assert region.splits == [(0, 0), (0, 100), (0, 0), (50, 0), (0, 0)]


async def test_a_deliverer_whose_region_the_guard_took_back_is_interrupted_and_the_version_not_blamed(
    world: ClusterWorld,
) -> None:
    """It waits for evidence, and none of its renewals arrives for longer than its Lease allows."""
    region = world.regions[REGIONS[0]]
    guard = region.guard()

    async def unheard() -> None:
        region.cluster.edit(LEASES, lease(NAME), lambda it: it["spec"].update(leaseDurationSeconds=30))
        while not await guard.check():
            await world.time.sleep(10)

    tasks: list[asyncio.Task[None]] = []

    def alone() -> None:
        world.evidence.gone = True
        tasks.append(asyncio.ensure_future(unheard()))

    world.when(f"canary@{region.region}/50", "traffic", alone)
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.INTERRUPTED, ExitCode.OUTSIDE), result.reason
    at, told = f"canary@{region.region}/50", f"version {CHALLENGER} was rolled back by the region's guard at"
    assert result.reason.startswith(f"{at}: support-llm in {region.region}: {told} ")
    assert "nothing was heard of its carrier (ci-7 (process 7)) since" in result.reason
    assert world.stable_versions() == NOWHERE
    assert world.registry.marks["tidegate.outcome"] == "interrupted"


@pytest.mark.parametrize("seconds", [0.1, 3.0])
async def test_a_canary_without_an_engine_is_the_versions_fault_and_not_the_gateways(
    tmp_path: Path, seconds: float
) -> None:
    """Argo Rollouts writes weight 0 meanwhile, and leaves step and status: 0 of all requests reach the canary."""
    world = ClusterWorld(tmp_path, demo_on_clusters(REGIONS[:1]))
    (region,) = world.regions.values()
    words = "Xid 79: GPU has fallen off the bus"

    def die() -> None:
        region.simulation.crash(CHALLENGER, last_words=words)

    world.when(f"canary@{region.region}/50", "started", lambda: world.time.call_later(seconds, die))
    result = await world.deliver()
    assert (result.ending, result.exit_code) == (Ending.ROLLED_BACK, ExitCode.ROLLED_BACK), result.reason
    assert words in result.reason
    assert region.versions()[0] == CHAMPION
