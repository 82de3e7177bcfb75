"""The fake keeps the contract in process; `make test-cluster` holds a real cluster to the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.contract import RolloutContract, ServerContract, note, scene, service
from fakes.kube.server import client_of

from rollouts.adapters.kube.client import KubeClient

__all__ = ["note", "scene", "service"]


@pytest.fixture(params=[True, False], ids=["old", "young"])
def forgets(request: pytest.FixtureRequest) -> bool:
    """An old server has compacted what it knew first."""
    return bool(request.param)


@pytest.fixture
async def client(request: pytest.FixtureRequest) -> AsyncIterator[KubeClient]:
    time = SimulatedTime()
    cluster = FakeCluster(time=time, namespace="llm")
    if "forgets" in request.fixturenames and request.getfixturevalue("forgets"):
        cluster.store.compact()
    client = client_of(Api(cluster))
    yield client
    await client.close()


@pytest.fixture
def marked() -> str:
    return "run"


class TestServer(ServerContract): ...


class TestRollouts(RolloutContract): ...
