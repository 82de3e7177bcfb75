"""Requests: what they do, and when they are repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fakes.clock import SimulatedTime
from fakes.kube.api import Api
from fakes.kube.requests import Fault, LoseAnswer, LoseRequest
from fakes.kube.server import fixed

from rollouts.errors import NoConnection, TooManyRequests, Unreachable
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import CONFIG_MAPS, PODS, AccessReview

Body = dict[str, Any]


def note(name: str, **data: str) -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_each_object_of_a_list_says_what_it_is(client: KubeClient) -> None:
    for name in "ab":
        await client.create(CONFIG_MAPS, note(name))
    listed = await client.list(CONFIG_MAPS)
    found = [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in listed]
    assert found == [("v1", "ConfigMap", "a"), ("v1", "ConfigMap", "b")]


# What is repeated.

Act = Callable[[KubeClient], Awaitable[Any]]
READS: dict[str, Act] = {
    "get": lambda client: client.get(CONFIG_MAPS, "a"),
    "list": lambda client: client.list(CONFIG_MAPS),
    "allowed": lambda client: client.allowed(AccessReview(verb="get", resource=PODS)),
    "text": lambda client: client.text("/version"),
    "dry run": lambda client: client.apply(note("a", x="2"), force=True, dry_run=True),
}
WRITES: dict[str, Act] = {
    "create": lambda client: client.create(CONFIG_MAPS, note("b")),
    "apply": lambda client: client.apply(note("a", x="2"), force=True),
    "patch": lambda client: client.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}),
    "replace": lambda client: client.replace(CONFIG_MAPS, note("a", x="2")),
    "delete": lambda client: client.delete(CONFIG_MAPS, "a"),
}


@pytest.fixture
async def ready(client: KubeClient, api: Api) -> KubeClient:
    await client.create(CONFIG_MAPS, note("a", x="1"))
    api.calls.clear()
    return client


@pytest.mark.parametrize("act", READS.values(), ids=READS)
async def test_a_read_is_repeated_after_a_lost_answer(ready: KubeClient, api: Api, act: Act) -> None:
    api.faults.add(Fault(LoseAnswer(), times=2))
    await act(ready)
    assert len(api.calls) == 3


@pytest.mark.parametrize("act", WRITES.values(), ids=WRITES)
async def test_a_write_whose_answer_was_lost_is_its_callers_to_judge(ready: KubeClient, api: Api, act: Act) -> None:
    api.faults.add(Fault(LoseAnswer()))
    with pytest.raises(Unreachable) as caught:
        await act(ready)
    assert not isinstance(caught.value, NoConnection)
    assert len(api.calls) == 1


@pytest.mark.parametrize("act", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
async def test_what_was_never_sent_is_sent_again(ready: KubeClient, api: Api, act: Act) -> None:
    api.faults.add(Fault(LoseRequest(), times=2))
    await act(ready)
    assert len(api.calls) == 1


@pytest.mark.parametrize("act", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
async def test_a_busy_server_is_asked_again_when_it_said(
    ready: KubeClient, api: Api, act: Act, time: SimulatedTime
) -> None:
    api.faults.busy(retry_after=5, times=2)
    begun = time.elapsed
    await act(ready)
    assert len(api.calls) == 3
    assert time.elapsed - begun == 10


async def test_patience_has_an_end(ready: KubeClient, api: Api, time: SimulatedTime) -> None:
    api.vanish()
    with pytest.raises(NoConnection, match=r"eu-west-1\.example cannot be reached"):
        await ready.get(CONFIG_MAPS, "a")
    assert time.elapsed <= 20
    api.come_back()
    assert await ready.get(CONFIG_MAPS, "a")


async def test_a_server_that_is_busy_for_long_is_not_waited_for(
    ready: KubeClient, api: Api, time: SimulatedTime
) -> None:
    api.faults.busy(retry_after=300)
    with pytest.raises(TooManyRequests) as caught:
        await ready.get(CONFIG_MAPS, "a")
    assert caught.value.retry_after_seconds == 300
    assert time.elapsed == 0


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "[]", ""])
async def test_a_page_that_is_no_api_server_is_nobody(page: str, time: SimulatedTime) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=page))
    client = KubeClient(fixed("https://x", time), namespace="llm", clock=time, transport=transport)
    with pytest.raises(Unreachable, match="something answered that is no API server"):
        await client.get(PODS, "a")
    await client.close()
