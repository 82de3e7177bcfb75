"""One cluster in memory, and a plain HTTP client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import FakeTransport


@pytest.fixture
def time() -> SimulatedTime:
    return SimulatedTime()


@pytest.fixture
def cluster(time: SimulatedTime) -> FakeCluster:
    return FakeCluster(time=time, namespace="llm")


@pytest.fixture
def api(cluster: FakeCluster) -> Api:
    return Api(cluster)


@pytest.fixture
async def http(api: Api) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=FakeTransport(api), base_url="https://eu-west-1.example") as client:
        yield client
