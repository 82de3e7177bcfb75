"""One API server in memory, and a client of it."""

from __future__ import annotations

import pytest
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import client_of

from rollouts.kube.client import KubeClient


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
def client(api: Api) -> KubeClient:
    return client_of(api)
