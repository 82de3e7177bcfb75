"""The fake keeps the contract in process; `make test-cluster` holds a real cluster to the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.contract import RolloutContract, ServerContract, note, scene, service
from fakes.kube.server import client_of

from rollouts.kube.client import KubeClient

__all__ = ["note", "scene", "service"]


@pytest.fixture
async def client() -> AsyncIterator[KubeClient]:
    client = client_of(Api(FakeCluster(time=SimulatedTime(), namespace="llm")))
    yield client
    await client.close()


@pytest.fixture
def marked() -> str:
    return "run"


class TestServer(ServerContract): ...


class TestRollouts(RolloutContract): ...
