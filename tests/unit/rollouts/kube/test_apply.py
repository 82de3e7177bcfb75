"""Server-side apply: as often as one likes, strictly, and without taking what is another's."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.kube.cluster import FakeCluster

from rollouts.adapters.kube.client import KubeClient
from rollouts.errors import Conflict, Invalid
from rollouts.kube.resources import CONFIG_MAPS


def note(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_what_is_applied_is_there_however_often_it_is_said(client: KubeClient) -> None:
    await client.apply(note("a", x="1"))
    first = await client.apply(note("a", x="2"))
    assert first["data"] == {"x": "2"}
    again = await client.apply(note("a", x="2"))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_pretending_changes_nothing(client: KubeClient) -> None:
    await client.apply(note("a", x="1"))
    assert (await client.apply(note("a", x="2"), dry_run=True))["data"] == {"x": "2"}
    assert (await client.patch(CONFIG_MAPS, "a", {"data": {"x": "3"}}, dry_run=True))["data"] == {"x": "3"}
    assert (await client.get(CONFIG_MAPS, "a"))["data"] == {"x": "1"}


async def test_an_unknown_field_is_refused(client: KubeClient) -> None:
    body = note("a") | {"dataa": {}}
    with pytest.raises(Invalid):
        await client.apply(body)


async def test_a_field_of_another_manager_is_taken_only_by_force(client: KubeClient, cluster: FakeCluster) -> None:
    await client.apply(note("a", x="1", y="1"))
    cluster.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}})
    with pytest.raises(Conflict):
        await client.apply(note("a", x="3", y="1"))
    assert (await client.apply(note("a", y="3")))["data"] == {"x": "2", "y": "3"}
    assert (await client.apply(note("a", x="3", y="3"), force=True))["data"] == {"x": "3", "y": "3"}
