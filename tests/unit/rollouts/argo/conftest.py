"""A region with a Rollout whose version 1 serves, and two people who ask its API server."""

from __future__ import annotations

import pytest
from fakes.argo.scene import Scene
from fakes.kube.api import Api
from fakes.kube.server import client_of

from rollouts.argo.actions import RolloutClient
from rollouts.kube.client import KubeClient


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def api(scene: Scene) -> Api:
    return Api(scene.cluster)


@pytest.fixture
def client(api: Api) -> KubeClient:
    return client_of(api)


@pytest.fixture
def rollouts(client: KubeClient, scene: Scene) -> RolloutClient:
    return RolloutClient(client, scene.cluster.time)


@pytest.fixture
def somebody_else(api: Api, scene: Scene) -> RolloutClient:
    return RolloutClient(client_of(api), scene.cluster.time)
