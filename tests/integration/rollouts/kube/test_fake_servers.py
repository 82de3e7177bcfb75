"""Fake clusters behind sockets: the same contract, through a kubeconfig, and what only a connection can show."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from fakes.kube.access import TOKEN
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.contract import (
    AccessContract,
    ApplyContract,
    EndingContract,
    ListingContract,
    PatchingContract,
    RolloutContract,
    StatusContract,
    WatchingContract,
    WritingContract,
    note,
    scene,
    service,
    told,
)
from fakes.kube.faults import Fault, LoseAnswer
from fakes.kube.server import FakeServers, serving
from fakes.kube.simulated_time import RealTime, SimulatedTime

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.connect import connect
from rollouts.errors import NoConnection, Unauthorized, Unreachable
from rollouts.kube.model import ChangeKind
from rollouts.kube.resources import CONFIG_MAPS
from tidegate.core.clock import SystemClock

__all__ = ["note", "scene", "service"]

REGIONS = ("eu-west-1", "us-east-1")
_RUNS = itertools.count(1)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServers]:
    apis = {name: Api(FakeCluster(name, namespace="llm", time=RealTime())) for name in REGIONS}
    for api in apis.values():
        api.access.require(TOKEN)
        api.cluster.store.compact()
    with serving(apis, tmp_path_factory.mktemp("clusters"), namespace="llm") as running:
        yield running


@pytest.fixture
async def client(servers: FakeServers) -> AsyncIterator[KubeClient]:
    client = connect("eu-west-1", clock=SystemClock(), kubeconfig=str(servers.kubeconfig), patience_seconds=0)
    yield client
    await client.close()


@pytest.fixture
def forgets() -> bool:
    """They were compacted before the first request."""
    return True


@pytest.fixture
def marked() -> str:
    return f"run-{next(_RUNS)}"


class TestWriting(WritingContract): ...


class TestPatching(PatchingContract): ...


class TestApply(ApplyContract): ...


class TestStatus(StatusContract): ...


class TestEnding(EndingContract): ...


class TestListing(ListingContract): ...


class TestWatching(WatchingContract): ...


class TestAccess(AccessContract): ...


class TestRollouts(RolloutContract): ...


async def test_regions_are_clusters_of_their_own(servers: FakeServers, client: KubeClient) -> None:
    await client.create(CONFIG_MAPS, {"metadata": {"name": "here"}})
    there = servers.api("us-east-1").cluster
    assert servers.do(lambda: there.find(CONFIG_MAPS, "here")) is None


async def test_an_unknown_token_is_not_let_in(servers: FakeServers, client: KubeClient) -> None:
    access = servers.api("eu-west-1").access
    servers.do(lambda: access.require("another"))
    try:
        with pytest.raises(Unauthorized):
            await client.list(CONFIG_MAPS)
    finally:
        servers.do(lambda: access.require(TOKEN))


async def test_a_lost_answer_is_a_broken_connection_and_the_deed_is_done(
    servers: FakeServers, client: KubeClient
) -> None:
    api = servers.api("eu-west-1")
    servers.do(lambda: api.faults.add(Fault(LoseAnswer(), verbs=("create",))))
    with pytest.raises(Unreachable):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "lost"}})
    assert (await client.get(CONFIG_MAPS, "lost"))["metadata"]["name"] == "lost"


async def test_a_region_that_vanishes_refuses_connections_and_its_watches_go_on_when_it_is_back(
    servers: FakeServers, client: KubeClient
) -> None:
    async with aclosing(client.watch(CONFIG_MAPS, labels="name=back")) as changes:
        while (await anext(changes)).kind is not ChangeKind.SYNCED:
            pass
        await asyncio.to_thread(servers.vanish, "eu-west-1")
        with pytest.raises(NoConnection):
            await client.list(CONFIG_MAPS)
        cluster = servers.api("eu-west-1").cluster
        body = {"metadata": {"name": "meanwhile", "labels": {"name": "back"}}}
        servers.do(lambda: cluster.create(CONFIG_MAPS, body))
        await asyncio.to_thread(servers.come_back, "eu-west-1")
        assert await told(changes, 1) == [("ADDED", "back")]


def test_simulated_time_cannot_be_served(tmp_path: Path) -> None:
    api = Api(FakeCluster(time=SimulatedTime()))
    with pytest.raises(ValueError, match="RealTime"), serving({"eu-west-1": api}, tmp_path):
        pass
