"""What a watcher is told, when it is told nothing, and how its stream ends."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.simulated_time import SimulatedTime

from rollouts.kube.resources import CONFIG_MAPS, PODS, SERVICES

Json = dict[str, Any]
PATH = "/api/v1/namespaces/llm/configmaps"


def note(name: str, **labels: str) -> Json:
    return {"metadata": {"name": name, "labels": labels}, "data": {"x": "1"}}


async def events(http: httpx.AsyncClient, path: str = PATH, **query: str) -> list[tuple[str, str, str]]:
    """Everything that a watch tells until the server ends it: type, name, version."""
    async with http.stream("GET", path, params={"watch": "1"} | query) as response:
        told = [json.loads(line) async for line in response.aiter_lines()]
    return [
        (one["type"], one["object"]["metadata"].get("name", ""), one["object"]["metadata"].get("resourceVersion", ""))
        for one in told
    ]


async def test_without_a_version_what_exists_comes_first(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    one = cluster.create(CONFIG_MAPS, note("a"))
    told = await events(http, timeoutSeconds="10")
    assert told == [("ADDED", "a", one["metadata"]["resourceVersion"])]


async def test_from_a_version_only_what_came_after_it(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    one = cluster.create(CONFIG_MAPS, note("a"))
    cluster.create(SERVICES, {"metadata": {"name": "other-kind"}})
    cluster.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}})
    cluster.delete(CONFIG_MAPS, "a")
    told = await events(http, resourceVersion=one["metadata"]["resourceVersion"], timeoutSeconds="10")
    assert [(kind, name) for kind, name, _ in told] == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_one_namespace_or_all(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    cluster.create_namespace("other")
    cluster.create(CONFIG_MAPS, note("here"))
    cluster.create(CONFIG_MAPS, note("there"), namespace="other")
    assert [name for _, name, _ in await events(http, timeoutSeconds="1")] == ["here"]
    everywhere = await events(http, "/api/v1/configmaps", timeoutSeconds="1")
    assert [name for _, name, _ in everywhere] == ["here", "there"]


async def test_bookmarks_come_every_minute_and_only_when_asked_for(
    http: httpx.AsyncClient, cluster: FakeCluster, time: SimulatedTime
) -> None:
    cluster.create(CONFIG_MAPS, note("a"))
    now = str(cluster.store.version)
    assert await events(http, resourceVersion=now, timeoutSeconds="150") == []
    told = await events(http, resourceVersion=now, timeoutSeconds="150", allowWatchBookmarks="true")
    assert told == [("BOOKMARK", "", now)] * 2
    assert time.monotonic() == 300


async def test_a_bookmark_moves_on_with_other_kinds(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    cluster.time.call_later(30, lambda: cluster.create(SERVICES, {"metadata": {"name": "other-kind"}}))
    version = str(cluster.store.version)
    told = await events(http, resourceVersion=version, timeoutSeconds="70", allowWatchBookmarks="true")
    assert [(kind, int(at) - int(version)) for kind, _, at in told] == [("BOOKMARK", 1)]


async def test_a_forgotten_version_is_an_error_event(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    cluster.create(CONFIG_MAPS, note("a"))
    cluster.store.compact()
    async with http.stream("GET", PATH, params={"watch": "1", "resourceVersion": "2"}) as response:
        (line,) = [line async for line in response.aiter_lines()]
    told = json.loads(line)
    assert response.status_code == 200
    assert (told["type"], told["object"]["code"], told["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_what_matches_no_more_is_deleted_as_it_last_matched(
    http: httpx.AsyncClient, cluster: FakeCluster
) -> None:
    one = cluster.create(CONFIG_MAPS, note("a", color="blue"))
    after = cluster.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"color": "red"}}})
    query = {"resourceVersion": one["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
    async with http.stream("GET", PATH, params={"watch": "1", "labelSelector": "color=blue"} | query) as response:
        (line,) = [line async for line in response.aiter_lines()]
    told = json.loads(line)
    assert told["type"] == "DELETED"
    assert told["object"]["metadata"]["labels"] == {"color": "blue"}
    assert told["object"]["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def test_a_field_that_begins_to_match_is_added(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    pod = cluster.create(PODS, {"metadata": {"name": "a"}})
    cluster.update_status(PODS, pod | {"status": {"phase": "Running"}})
    query = {"resourceVersion": pod["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
    told = await events(http, "/api/v1/namespaces/llm/pods", fieldSelector="status.phase=Running", **query)
    assert [(kind, name) for kind, name, _ in told] == [("ADDED", "a")]


async def test_a_cut_loses_what_was_not_read(http: httpx.AsyncClient, cluster: FakeCluster, api: Api) -> None:
    cluster.create(CONFIG_MAPS, note("a"))
    async with http.stream("GET", PATH, params={"watch": "1"}) as response:
        lines = response.aiter_lines()
        await anext(lines)
        cluster.create(CONFIG_MAPS, note("b"))
        api.cut_watches()
        assert [line async for line in lines] == []


async def test_a_region_that_vanishes_breaks_its_streams(
    http: httpx.AsyncClient, cluster: FakeCluster, api: Api
) -> None:
    cluster.create(CONFIG_MAPS, note("a"))
    async with http.stream("GET", PATH, params={"watch": "1"}) as response:
        lines = response.aiter_lines()
        await anext(lines)
        api.vanish()
        with pytest.raises(httpx.ReadError):
            await anext(lines)


async def test_who_stops_listening_leaves_nothing_behind(http: httpx.AsyncClient, cluster: FakeCluster) -> None:
    for _ in range(3):
        async with http.stream("GET", PATH, params={"watch": "1"}):
            pass
    assert cluster.store._listeners == []
