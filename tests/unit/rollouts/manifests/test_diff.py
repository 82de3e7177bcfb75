"""What a cluster says that applying would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fakes.clock import SimulatedTime
from fakes.clusters.region import moved_in
from fakes.fleet import fleet_spec, release
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.server import client_of

from rollouts.kube.client import KubeClient
from rollouts.kube.resources import HTTP_ROUTES, SCALED_OBJECTS, SERVICES, resource_of
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.diff import DiffState, ObjectDiff, differences
from rollouts.manifests.render import render
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH

SCALED: dict[str, Any] = {"autoscale": {"min_replicas": 1, "max_replicas": 4}, "replicas": 2}


@pytest.fixture
def time() -> SimulatedTime:
    return SimulatedTime()


@pytest.fixture
def cluster(time: SimulatedTime) -> FakeCluster:
    return FakeCluster(time=time, namespace="serving")


@pytest.fixture
def client(cluster: FakeCluster) -> KubeClient:
    return client_of(Api(cluster))


async def applied(client: KubeClient, objects: Sequence[Json]) -> None:
    for each in objects:
        await client.apply(each, force=True)


def states(found: Sequence[ObjectDiff]) -> dict[str, DiffState]:
    return {f"{each.kind} {each.name}": each.state for each in found}


async def test_everything_is_new_to_an_empty_cluster_and_nothing_once_it_is_applied(client: KubeClient) -> None:
    wanted = render(fleet_spec(**SCALED, warm_pool={}), release(accelerator="nvidia-l4"))
    assert set(states(await differences(client, wanted)).values()) == {DiffState.NEW}
    await applied(client, wanted)
    assert set(states(await differences(client, wanted)).values()) == {DiffState.SAME}


async def test_another_version_is_told_line_by_line(client: KubeClient) -> None:
    await applied(client, render(fleet_spec(), release()))
    found = await differences(client, render(fleet_spec(), release(version="8")))
    changed = [each for each in found if each.state is DiffState.CHANGED]
    assert [(each.kind, each.name) for each in changed] == [("Rollout", "support-llm")]
    lines = changed[0].text.splitlines()
    assert [line for line in lines if line.startswith(("-", "+"))] == [
        "--- in the cluster",
        "+++ as rendered",
        "-    tidegate.dev/version: '7'",
        "+    tidegate.dev/version: '8'",
        "-        tidegate.dev/version: '7'",
        "+        tidegate.dev/version: '8'",
    ]


async def test_what_argo_rollouts_writes_is_no_difference(client: KubeClient, cluster: FakeCluster) -> None:
    wanted = render(fleet_spec(), release())
    await applied(client, wanted)
    narrowed = {"spec": {"selector": {POD_TEMPLATE_HASH: "5d4f"}}}
    await client.patch(SERVICES, "support-llm-stable", narrowed)
    route = cluster.get(HTTP_ROUTES, "support-llm")
    for ref, weight in zip(route["spec"]["rules"][0]["backendRefs"], (75, 25), strict=True):
        ref["weight"] = weight
    await client.replace(HTTP_ROUTES, route)
    assert set(states(await differences(client, wanted)).values()) == {DiffState.SAME}


async def test_what_helm_writes_onto_everything_that_it_installs_is_no_difference(client: KubeClient) -> None:
    wanted = render(fleet_spec(), release(), parts=(RenderPart.SETUP,))
    helm = {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "setup"}}
    await applied(client, wanted)
    for each in wanted:
        await client.patch(resource_of(each), each["metadata"]["name"], {"metadata": helm})
    assert set(states(await differences(client, wanted)).values()) == {DiffState.SAME}


async def test_what_the_server_would_refuse_is_told_next_to_the_rest(client: KubeClient, cluster: FakeCluster) -> None:
    cluster.uninstall(SCALED_OBJECTS)
    wanted = render(fleet_spec(**SCALED), release())
    found = await differences(client, wanted)
    assert {each.kind for each in found if each.state is DiffState.REFUSED} == {"ScaledObject"}
    assert len(found) == len(wanted)


async def test_what_is_somebody_elses_is_named_with_its_owner_and_not_compared(
    client: KubeClient, cluster: FakeCluster
) -> None:
    moved_in(cluster, "support-llm", "serving")
    found = await differences(client, render(fleet_spec(), release()))
    theirs = [each for each in found if each.state is DiffState.NOT_OURS]
    assert [each.text for each in theirs] == [
        f"{kind} support-llm{end} in serving is not tidegate's (managed by Helm release chat; last written by helm)"
        for kind, end in (("Service", "-stable"), ("Service", "-canary"), ("HTTPRoute", ""), ("Rollout", ""))
    ]
