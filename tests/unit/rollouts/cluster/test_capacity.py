"""Whether a version fits is known before anything is changed."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.clusters.region import ClusterRegion, a_fleet, an_image

from rollouts.cluster.capacity import (
    EngineDemand,
    Headroom,
    engine_demand,
    headroom_in_quotas,
    headroom_on_nodes,
    refuse_without_headroom,
)
from rollouts.kube.resources import NODES, RESOURCE_QUOTAS
from tidegate.core.errors import Refused
from tidegate.core.model import Json
from tidegate.testing import versions

GPU = "nvidia.com/gpu"


def pod(gpus: int = 1, *, node: str = "", phase: str = "Running", **labels: str) -> Json:
    resources = {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {GPU: str(gpus)}}
    spec = {"containers": [{"name": "engine", "resources": resources}], "nodeName": node}
    return {"metadata": {"name": "p", "labels": labels}, "spec": spec, "status": {"phase": phase}}


def node(name: str, *, gpus: int, cpu: str = "96", tainted: bool = False) -> Json:
    allocatable = {"cpu": cpu, "memory": "1Ti", GPU: str(gpus), "pods": "110"}
    taints = [{"key": GPU, "effect": "NoSchedule"}] if tainted else []
    return {"metadata": {"name": name}, "spec": {"taints": taints}, "status": {"allocatable": allocatable}}


def rollout(replicas: int = 4, *, scale: Json | None = None, **canary: Any) -> Json:
    steps = [{"setCanaryScale": scale or {"weight": 100}}, {"pause": {}}]
    return {"spec": {"replicas": replicas, "strategy": {"canary": {"steps": steps, **canary}}}}


LIVE: Json = {"spec": {"replicas": 6}}


@pytest.mark.parametrize(
    ("asked", "live", "need"),
    [
        pytest.param(rollout(), None, EngineDemand(first=4, most=4), id="the first version of a region"),
        pytest.param(
            rollout(), LIVE, EngineDemand(first=4, most=4), id="copies of everything need what the stable needs"
        ),
        pytest.param(rollout(scale={"weight": 30}), LIVE, EngineDemand(first=2, most=4), id="copies of a part"),
        pytest.param(
            rollout(scale={"replicas": 1}), LIVE, EngineDemand(first=1, most=4), id="one engine until users come"
        ),
        pytest.param(
            rollout(scale={"replicas": 1}, dynamicStableScale=True),
            LIVE,
            EngineDemand(first=1, most=1),
            id="a stable that gives engines away",
        ),
    ],
)
def test_a_version_needs_all_its_engines_again(asked: Json, live: Json | None, need: EngineDemand) -> None:
    assert engine_demand(asked, live) == need


def test_room_is_what_pods_leave_on_nodes_that_would_do() -> None:
    nodes = [node("a", gpus=8), node("b", gpus=8), node("tainted", gpus=8, tainted=True), node("small", gpus=1)]
    busy = [pod(2, node="a"), pod(4, node="a"), pod(1, node="b", phase="Succeeded")]
    room = headroom_on_nodes(nodes, busy, pod(2))
    assert room
    assert room.pods == 1 + 4


def test_the_scarcest_thing_of_a_node_counts() -> None:
    room = headroom_on_nodes([node("a", gpus=8, cpu="20")], [], pod(1))
    assert room
    assert room.pods == 2


def test_placeholders_make_room() -> None:
    placeholder = pod(8, node="a", **{"tidegate.dev/placeholder": "support-llm"})
    room = headroom_on_nodes([node("a", gpus=8)], [placeholder], pod(8))
    assert room
    assert room.pods == 1


def test_where_no_node_is_known_no_one_knows() -> None:
    assert headroom_on_nodes([], [], pod()) is None


def test_no_node_of_the_kind_is_told_with_the_reason() -> None:
    room = headroom_on_nodes([node("tainted", gpus=8, tainted=True)], [], pod(1))
    assert room == Headroom(pods=0, bound_by="no node takes such a pod; taint nvidia.com/gpu:NoSchedule (1 nodes)")


def test_a_quota_bounds_too() -> None:
    status = {"hard": {f"requests.{GPU}": "8", "pods": "50"}, "used": {f"requests.{GPU}": "5", "pods": "3"}}
    rooms = list(headroom_in_quotas([{"metadata": {"name": "gpus"}, "status": status}], pod(2)))
    assert [room.pods for room in rooms] == [1, 47]
    assert rooms[0].bound_by == f"quota gpus has 3 requests.{GPU} left"


def test_a_refusal_says_what_would_fit() -> None:
    rooms = [Headroom(pods=9, bound_by="quota"), Headroom(pods=2, bound_by="3 nodes take such pods")]
    with pytest.raises(Refused) as caught:
        refuse_without_headroom("2", EngineDemand(first=4, most=4), rooms)
    assert caught.value.message == (
        "version 2 needs 4 engines besides those that serve, and there is room for 2: 3 nodes take such pods"
    )
    assert caught.value.hint == "bring nodes for 2 more, or serve with fewer `replicas`"


def bring_nodes(region: ClusterRegion, number: int, *, cpu: str) -> None:
    for index in range(number):
        made = region.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{index}"}})
        allocatable = {"cpu": cpu, "memory": "256Gi", "pods": "110"}
        region.cluster.update_status(NODES, made | {"status": {"allocatable": allocatable}})


async def test_a_region_without_room_is_left_as_it_is() -> None:
    region = ClusterRegion(spec=a_fleet("eu-west-1", replicas=2))
    await region.fleet.deploy(an_image("1"))
    bring_nodes(region, 1, cpu="8")
    before = region.rollout
    with pytest.raises(Refused, match="needs 2 engines besides those that serve, and there is room for 1"):
        await region.fleet.deploy(an_image("2"))
    assert region.rollout == before


async def test_a_region_with_room_takes_it() -> None:
    region = ClusterRegion(spec=a_fleet("eu-west-1", replicas=2))
    bring_nodes(region, 2, cpu="8")
    await region.fleet.deploy(an_image("1"))
    assert versions(await region.fleet.deploy(an_image("2"))) == ("1", "2", None)


async def test_a_quota_is_heeded_before_anything_is_applied() -> None:
    region = ClusterRegion()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "engines"}}
    made = region.cluster.create(RESOURCE_QUOTAS, quota)
    status = {"hard": {"pods": "3"}, "used": {"pods": "2"}}
    region.cluster.update_status(RESOURCE_QUOTAS, made | {"status": status})
    with pytest.raises(Refused, match="quota engines has 1 pods left"):
        await region.fleet.deploy(an_image("1"))


async def test_who_may_not_see_nodes_goes_on_without_knowing(caplog: pytest.LogCaptureFixture) -> None:
    region = ClusterRegion()
    everything_here = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    region.api.access.allow_only(everything_here)
    assert versions(await region.fleet.deploy(an_image("1"))) == ("1", None, None)
    assert "it is unknown whether there is room" in caplog.text
