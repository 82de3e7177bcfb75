"""Each fault as a client meets it, and how often."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fakes.kube.api import Api
from fakes.kube.cluster import FakeCluster
from fakes.kube.requests import Call, Fault, LoseAnswer, LoseRequest, Meanwhile

from rollouts.kube.resources import CONFIG_MAPS

PATH = "/api/v1/namespaces/llm/configmaps"
MERGE = {"content-type": "application/merge-patch+json"}


@pytest.fixture(autouse=True)
def noted(cluster: FakeCluster) -> None:
    cluster.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}})


async def patched(http: httpx.AsyncClient, x: str, **metadata: Any) -> httpx.Response:
    body = {"data": {"x": x}} | ({"metadata": metadata} if metadata else {})
    return await http.patch(f"{PATH}/a", content=json.dumps(body), headers=MERGE)


async def test_a_lost_request_does_nothing_and_a_lost_answer_is_done(
    http: httpx.AsyncClient, api: Api, cluster: FakeCluster
) -> None:
    api.faults.add(Fault(LoseRequest(), verbs=("patch",)))
    with pytest.raises(httpx.ConnectError):
        await patched(http, "2")
    assert cluster.get(CONFIG_MAPS, "a")["data"] == {"x": "1"}
    api.faults.add(Fault(LoseAnswer(), verbs=("patch",)))
    with pytest.raises(httpx.ReadError):
        await patched(http, "2")
    assert cluster.get(CONFIG_MAPS, "a")["data"] == {"x": "2"}


async def test_every_write_conflicts_once(http: httpx.AsyncClient, api: Api) -> None:
    api.faults.conflict_on_every_write()
    first, second, third = await patched(http, "2"), await patched(http, "2"), await patched(http, "3")
    assert [answer.status_code for answer in (first, second, third)] == [409, 200, 200]
    assert (await http.get(f"{PATH}/a")).json()["data"] == {"x": "3"}


async def test_somebody_else_writes_between_reading_and_writing(
    http: httpx.AsyncClient, api: Api, cluster: FakeCluster
) -> None:
    def rival(call: Call) -> None:
        cluster.patch(CONFIG_MAPS, call.name, {"metadata": {"annotations": {"rival": "1"}}}, manager="rival")

    version = cluster.get(CONFIG_MAPS, "a")["metadata"]["resourceVersion"]
    api.faults.add(Fault(Meanwhile(rival), verbs=("patch",)))
    assert (await patched(http, "2", resourceVersion=version)).status_code == 409
    assert (await patched(http, "2")).status_code == 200


async def test_a_fault_hits_only_what_it_names_after_so_many_calls(http: httpx.AsyncClient, api: Api) -> None:
    api.faults.add(Fault(LoseRequest(), verbs=("get",), plural="configmaps", name="a", after=1))
    await http.get(PATH)
    await http.get(f"{PATH}/a")
    with pytest.raises(httpx.ConnectError):
        await http.get(f"{PATH}/a")
    assert (await http.get(f"{PATH}/a")).status_code == 200
