"""The simulated controller keeps the contract, on a cluster in memory and in simulated time."""

from __future__ import annotations

import pytest
from fakes.argo.simulation import Simulation
from fakes.argo.stage import ControllerContract, Stage
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import client_of


class InMemory:
    """A `fakes.argo.stage.Controller`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._simulation = Simulation(cluster, start_seconds=2)

    async def kill(self) -> None:
        self._simulation.controller_down = True

    async def start(self) -> None:
        self._simulation.controller_down = False

    async def break_plugin(self, broken: bool) -> None:
        self._simulation.plugin_broken = broken

    async def end_analyses(self, phase: str) -> None:
        self._simulation.analysis(phase)


@pytest.fixture
async def stage() -> Stage:
    cluster = FakeCluster(namespace="serving")
    client = client_of(Api(cluster))
    image = "registry.example/pause:1"
    stage = Stage(client, cluster.time, InMemory(cluster), name="chat", image=image, patience_seconds=60)
    await stage.furnish()
    return stage


class TestInMemory(ControllerContract): ...
