"""Simulated controllers behind a real socket, in real time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from fakes.argo.scene import NAME, canary, http_route, rollout, service
from fakes.argo.simulation import Simulation
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import serving
from fakes.kube.simulated_time import RealTime

from rollouts.adapters.kube.connect import connect
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import HTTP_ROUTES, ROLLOUTS, SERVICES
from tidegate.core.clock import SystemClock

REGION = "eu-west-1"


async def test_a_rollout_becomes_healthy_and_pauses_at_its_step(tmp_path: Path) -> None:
    with serving({REGION: Api(FakeCluster(time=RealTime()))}, tmp_path) as servers:
        cluster = servers.api(REGION).cluster
        simulation = servers.do(lambda: Simulation(cluster, start_seconds=0.1))
        client = connect(REGION, kubeconfig=str(servers.kubeconfig), clock=SystemClock())
        for arm in ("stable", "canary"):
            await client.create(SERVICES, service(f"{NAME}-{arm}"))
        await client.create(HTTP_ROUTES, http_route())
        await client.create(ROLLOUTS, rollout(canary()))
        await comes_to(client, "Healthy")
        labels = {"app": NAME, "tidegate.dev/version": "2"}
        await client.patch(ROLLOUTS, NAME, {"spec": {"template": {"metadata": {"labels": labels}}}})
        await comes_to(client, "Paused")
        await client.close()
        assert servers.do(simulation.reconcile_errors.total) == 0
        servers.do(simulation.close)


async def comes_to(client: Cluster, phase: str) -> None:
    async with asyncio.timeout(60), aclosing(client.watch(ROLLOUTS, fields=f"metadata.name={NAME}")) as changes:
        async for change in changes:
            if change.object.get("status", {}).get("phase") == phase:
                return
