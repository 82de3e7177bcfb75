"""A region with a Rollout whose version 1 serves, and two people who ask its API server."""

from __future__ import annotations

import pytest
from fakes.argo.scene import Scene
from fakes.kube.api import Api
from fakes.kube.server import FakeTransport

from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.credentials import CredentialProvider
from rollouts.argo.actions import RolloutClient


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def api(scene: Scene) -> Api:
    return Api(scene.cluster)


@pytest.fixture
def client(api: Api, scene: Scene) -> KubeClient:
    return _client(api, scene)


@pytest.fixture
def rollouts(client: KubeClient, scene: Scene) -> RolloutClient:
    return RolloutClient(client, scene.cluster.time)


@pytest.fixture
def somebody_else(api: Api, scene: Scene) -> RolloutClient:
    return RolloutClient(_client(api, scene), scene.cluster.time)


def _client(api: Api, scene: Scene) -> KubeClient:
    time = scene.cluster.time
    return KubeClient(
        CredentialProvider.fixed("https://eu-west-1.example", clock=time),
        namespace="default",
        clock=time,
        transport=FakeTransport(api),
        chance=lambda: 0.5,
    )
