"""What users see while a region changes: real Envoy, real processes, streams all the time."""

from __future__ import annotations

import asyncio

import pytest
from alike import long
from fakes.engines.local_fleet import SharedHosts, Users, kill, newest_with, process_of, stand_in

from rollouts.adapters.host_client import LocalRegionClient
from rollouts.adapters.http import Http
from rollouts.model import EngineSet, RegionPhase

pytestmark = pytest.mark.slow(reason="users with streams of some seconds")


async def more(users: Users, count: int) -> None:
    """Return once so many more were answered."""
    wanted = len(users.requests) + count
    while len(users.requests) < wanted:
        await asyncio.sleep(0.02)


async def test_no_stream_is_cut_by_a_delivery(fleet: LocalRegionClient) -> None:
    state = await fleet.deploy(stand_in("6"))
    async with Users(state.entry) as users:
        await more(users, 20)
        await fleet.deploy(stand_in("7"))
        await fleet.mirror(100)
        await more(users, 20)
        await fleet.mirror(0)
        for weight in (5, 25, 50):
            await fleet.shift(weight)
            await more(users, 20)
        await fleet.promote()
        await more(users, 20)
    assert users.failed == []
    assert users.by_role()["canary"] > 5
    assert users.requests[-1].version == "7"


async def test_no_stream_is_cut_by_a_rollback_after_the_promotion(fleet: LocalRegionClient) -> None:
    state = await fleet.deploy(stand_in("6"))
    await fleet.deploy(stand_in("7", "--tokens", "60"))
    async with Users(state.entry) as users:
        await fleet.promote()
        await more(users, 20)
        await fleet.rollback("6")
        await more(users, 12)
    assert users.failed == []
    assert {request.version for request in users.requests} == {"6", "7"}
    assert users.requests[-1].started > users.requests[0].started


@pytest.mark.parametrize("weight", [5, long(50)])
async def test_users_are_spread_by_weight(fleet: LocalRegionClient, weight: int) -> None:
    state = await fleet.deploy(stand_in("6", "--interval", "0"))
    await fleet.deploy(stand_in("7", "--interval", "0"))
    await fleet.shift(weight)
    async with Users(state.entry, per_second=200) as users:
        while len(users.requests) < 400:
            await asyncio.sleep(0.1)
    share = users.by_role()["canary"] / len(users.requests)
    # Five standard deviations of a fair coin over 400 throws.
    assert share == pytest.approx(weight / 100, abs=5 * (weight / 100 * (1 - weight / 100) / 400) ** 0.5)
    assert users.failed == []


async def test_copies_reach_the_canary_and_no_user(fleet: LocalRegionClient) -> None:
    state = await fleet.deploy(stand_in("6"))
    canary = (await fleet.deploy(stand_in("7"))).canary
    await fleet.mirror(100)
    async with Users(state.entry) as users:
        await more(users, 40)
    assert users.by_role().keys() == {"stable"}
    assert canary is not None
    async with asyncio.timeout(10):
        # Users wait for no copy.
        while await answered(canary) < len(users.requests) + 3:
            await asyncio.sleep(0.05)
    assert await answered(canary) == pytest.approx(len(users.requests) + 4, abs=1), "four more warmed it up"


async def test_a_killed_canary_costs_only_the_streams_that_were_on_it(fleet: LocalRegionClient) -> None:
    state = await fleet.deploy(stand_in("6"))
    canary = (await fleet.deploy(stand_in("7"))).canary
    await fleet.shift(50)
    async with Users(state.entry) as users:
        await more(users, 20)
        killed_at = await kill(process_of(canary))
        async with asyncio.timeout(10):
            while (seen := await fleet.observe()).weight:
                await asyncio.sleep(0.05)
        await more(users, 20)
    assert [request for request in users.failed if request.started > killed_at] == []
    assert {request.role for request in users.failed} <= {"canary"}
    assert (seen.phase, seen.weight) == (RegionPhase.DEGRADED, 0)
    assert seen.canary and seen.canary.problem and "stand-in engine" in seen.canary.problem


async def test_the_warm_previous_serves_while_a_killed_stable_comes_back(fleet: LocalRegionClient) -> None:
    state = await fleet.deploy(stand_in("6"))
    await fleet.deploy(stand_in("7"))
    stable = (await fleet.promote()).stable
    async with Users(state.entry) as users:
        await more(users, 12)
        killed_at = await kill(process_of(stable))
        async with asyncio.timeout(30):
            # The host may not have seen the death yet: steady means something only once users were moved.
            while users.by_role()["previous"] == 0:
                await asyncio.sleep(0.05)
            while (await fleet.observe()).phase is not RegionPhase.STEADY or users.requests[-1].role != "stable":
                await asyncio.sleep(0.1)
    assert [request for request in users.failed if request.started > killed_at] == []


async def test_a_killed_proxy_is_back_at_once(fleet: LocalRegionClient, hosts: SharedHosts) -> None:
    seen = await fleet.deploy(stand_in("6"))
    configuration = str(hosts.state / "fleet/regions" / fleet.region / "bootstrap.json")
    killed_at = await kill(newest_with(configuration))
    async with Users(seen.entry) as users:
        while not any(request.status == 200 for request in users.requests):
            await asyncio.sleep(0.05)
    first = min(request.started for request in users.requests if request.status == 200)
    assert first - killed_at < 3


async def answered(arm: EngineSet) -> int:
    """How many chats the engine itself has answered."""
    async with Http() as http:
        metrics = (await http.get(f"{arm.url}/metrics")).text
    counts = (line.split()[-1] for line in metrics.splitlines() if line.startswith("vllm:request_success_total"))
    return int(float(next(counts)))
