"""A real cluster keeps the contract that the fake is built by, and refuses what the fake takes: unknown fields."""

from __future__ import annotations

import pytest
from fakes.kube.contract import RolloutContract, ServerContract, note, scene, service

from rollouts.errors import Invalid
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import DEPLOYMENTS
from tidegate.core.model import Json

__all__ = ["note", "scene", "service"]


class TestServer(ServerContract):
    async def test_an_unknown_field_is_refused_by_name(self, client: KubeClient, scene: Json) -> None:
        scene["spec"]["replica"] = 1
        with pytest.raises(Invalid, match=r"\.spec\.replica: field not declared in schema$") as caught:
            await client.apply(scene)
        # The object is typed before strictness is asked about, and that error has no status of its own.
        assert caught.value.status == 500
        with pytest.raises(Invalid, match=r'unknown field "spec\.replica"') as caught:
            await client.create(DEPLOYMENTS, scene)
        assert caught.value.status == 400


@pytest.mark.usefixtures("rollouts_kinds")
class TestRollouts(RolloutContract):
    async def test_an_unknown_field_is_refused_by_name(self, client: KubeClient, rollout: Json) -> None:
        rollout["spec"]["strategy"]["canary"]["trafficRouting"] = {"gatewayAPI": {}}  # argo-rollouts#4569
        with pytest.raises(Invalid, match="gatewayAPI"):
            await client.apply(rollout)
