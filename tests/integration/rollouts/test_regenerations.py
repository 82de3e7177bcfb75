"""Users who ask again: what a real Envoy counts of them, and under which labels a real Prometheus keeps it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import psutil
import pytest
from alike import long
from fakes.engines.local_fleet import SharedHosts, Users, kill, process_of, stand_in
from fakes.waiting import PATIENCE_SECONDS

from rollouts.adapters.host_client import FleetHost, LocalRegionClient
from rollouts.adapters.http import Http

pytestmark = pytest.mark.slow(reason="Prometheus scrapes what users were answered")

METRIC = "envoy_vhost_vcluster_upstream_rq_total"


@dataclass(frozen=True)
class Region:
    """An empty one, and its host."""

    host: FleetHost
    fleet: LocalRegionClient


@pytest.fixture
async def region(hosts: SharedHosts) -> AsyncIterator[Region]:
    async with hosts.region() as (host, name):
        yield Region(host, host.fleet(name))


async def ask_again(entry: str, version: str, count: int) -> Users:
    """So many requests of users who did not want what that version said."""
    users = Users(entry, per_second=100, regenerates=version)
    async with users:
        while len(users.requests) < count:
            await asyncio.sleep(0.01)
    return users


async def series(region: Region) -> Mapping[tuple[str, str], float]:
    """What Prometheus knows of it, by role and version."""
    query = f'{METRIC}{{region="{region.fleet.region}"}}'
    async with Http() as http:
        reply = await http.get(f"{region.host.prometheus_url}/api/v1/query?query={query}")
    found = reply.json()["data"]["result"]
    return {(each["metric"]["role"], each["metric"]["version"]): float(each["value"][1]) for each in found}


async def counted(region: Region, expected: Mapping[tuple[str, str], float]) -> None:
    """Return once Prometheus knows just that."""
    deadline, found = time.monotonic() + PATIENCE_SECONDS, await series(region)
    while found != expected:
        assert time.monotonic() < deadline, f"{found} instead of {expected}"
        await asyncio.sleep(0.2)
        found = await series(region)


async def test_they_are_counted_for_the_arm_whose_answer_it_was(region: Region) -> None:
    fleet = region.fleet
    state = await fleet.deploy(stand_in("6", "--interval", "0"))
    await counted(region, {("stable", "6"): 0})
    await fleet.deploy(stand_in("7", "--interval", "0"))
    await fleet.shift(50)
    stable = len((await ask_again(state.entry, "6", 20)).requests)
    canary = len((await ask_again(state.entry, "7", 30)).requests)
    # Those who ask for the first time count for nobody.
    async with Users(state.entry) as others:
        while not others.requests:
            await asyncio.sleep(0.02)
    await counted(region, {("stable", "6"): stable, ("canary", "7"): canary})
    await fleet.promote()
    await ask_again(state.entry, "6", 10)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while ("previous", "6") not in (found := await series(region)) or found["previous", "6"] < 10:
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("version", ["5", long("6.1"), "", long("stable_6"), long("6, 7")])
async def test_no_client_can_make_a_series(region: Region, version: str) -> None:
    fleet = region.fleet
    state = await fleet.deploy(stand_in("6", "--interval", "0"))
    users = await ask_again(state.entry, version, 5)
    assert users.failed == []
    last = len((await ask_again(state.entry, "6", 5)).requests)
    await counted(region, {("stable", "6"): last})


async def test_a_copy_and_a_second_attempt_count_once(region: Region) -> None:
    fleet = region.fleet
    state = await fleet.deploy(stand_in("6", "--interval", "0"))
    canary = (await fleet.deploy(stand_in("7", "--interval", "0"))).canary
    await fleet.mirror(100)
    copied = len((await ask_again(state.entry, "6", 20)).requests)
    await fleet.mirror(0)
    await fleet.shift(50)
    await counted(region, {("stable", "6"): copied, ("canary", "7"): 0})
    # While its host sleeps nobody takes the dead canary off the map, and half of all requests meet it first.
    sleeper = psutil.Process(region.host.pid)
    sleeper.suspend()
    try:
        await kill(process_of(canary))
        tried_again = await ask_again(state.entry, "6", 40)
        await counted(region, {("stable", "6"): copied + len(tried_again.requests), ("canary", "7"): 0})
    finally:
        sleeper.resume()
    assert tried_again.failed == []
    assert tried_again.by_role().keys() == {"stable"}
