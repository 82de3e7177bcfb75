"""The controller's process next to a served cluster in memory, which runs ReplicaSets and "
"pods; Rollouts are its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.argo.simulation import Simulation
from fakes.argo.stage import AT_5, DEPLOYED, ControllerProcess, SeparateController, Stage
from fakes.clock import RealTime
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeServers, serving

from rollouts.kube.client import KubeClient, connect
from rollouts.kube.resources import PODS, REPLICA_SETS
from tidegate.core.clock import SystemClock

REGION, NAMESPACE = "eu-west-1", "serving"
KILLS = 6


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[FakeServers]:
    cluster = FakeCluster(REGION, namespace=NAMESPACE, time=RealTime())
    with serving({REGION: Api(cluster)}, tmp_path, namespace=NAMESPACE) as servers:
        servers.do(lambda: Simulation(cluster, start_seconds=0.2, works_on=(REPLICA_SETS, PODS)))
        yield servers


@pytest.fixture
async def client(servers: FakeServers) -> AsyncIterator[KubeClient]:
    client = connect(REGION, clock=SystemClock(), namespace=NAMESPACE, kubeconfig=str(servers.kubeconfig))
    yield client
    await client.close()


@pytest.fixture
async def controller(servers: FakeServers, tmp_path: Path) -> AsyncIterator[ControllerProcess]:
    process = ControllerProcess(NAMESPACE, tmp_path / "log", context=REGION, kubeconfig=servers.kubeconfig)
    await process.start()
    yield process
    assert await process.end() in (0, None), process.log


@pytest.fixture
async def stage(client: KubeClient, controller: ControllerProcess) -> Stage:
    image = "registry.example/pause:1"
    stage = Stage(
        client, SystemClock(), SeparateController(controller, client), name="chat", image=image, patience_seconds=60
    )
    await stage.furnish()
    return stage


@pytest.mark.long
async def test_killed_at_any_moment_it_goes_on_where_it_was(stage: Stage, controller: ControllerProcess) -> None:
    chance = random.Random(14)
    first = await stage.is_healthy_with("1")

    async def killed_now_and_then() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(chance.random())
            await controller.kill()
            await controller.start()

    kills = asyncio.create_task(killed_now_and_then())
    await stage.deploy("2")
    await stage.waits_at(DEPLOYED, weight=0)
    await stage.acts.to_step(stage.name, DEPLOYED + 1)
    await stage.waits_at(AT_5, weight=5)
    await stage.acts.promote_full(stage.name)
    second = await stage.is_healthy_with("2")
    assert second.pods["1"] == first.pods["1"]
    await stage.undo(1)
    third = await stage.is_healthy_with("1")
    assert third.pods == second.pods
    await kills


async def test_an_api_server_that_was_away_is_followed_again(stage: Stage, servers: FakeServers) -> None:
    await stage.is_healthy_with("1")
    servers.vanish(REGION)
    await asyncio.sleep(1)
    servers.come_back(REGION)
    await stage.deploy("2")
    await stage.waits_at(DEPLOYED, weight=0)


async def test_what_it_cannot_do_is_one_line(tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("apiVersion: v1\nkind: Config\n")
    process = ControllerProcess(NAMESPACE, tmp_path / "log", context="none", kubeconfig=nowhere)
    with pytest.raises(AssertionError):
        await process.start()
    assert await process.ended() == 1
    assert process.log.startswith("rollouts controller: ") and process.log.count("\n") == 1
