"""What goes wrong on a real connection, and how it is told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from fakes.services.sockets import STREAM, STREAM_END, Hang, Heard, Reset, answer, chunk, free_address, raw_server

from rollouts.adapters.kube import watch
from rollouts.adapters.kube.client import KubeClient
from rollouts.adapters.kube.credentials import CredentialProvider
from rollouts.errors import NoConnection, Unreachable
from rollouts.kube.resources import PODS
from tidegate.core.clock import SystemClock


def client_of(url: str) -> KubeClient:
    clock = SystemClock()
    return KubeClient(CredentialProvider.fixed(url, clock=clock), namespace="llm", clock=clock, retry_seconds=0)


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "llm", "uid": name, "resourceVersion": str(version)}}


def event(name: str, version: int) -> bytes:
    return json.dumps({"type": "ADDED", "object": pod(name, version)}).encode() + b"\n"


async def test_nobody_listens() -> None:
    client = client_of(f"http://{free_address()}")
    with pytest.raises(NoConnection, match="cannot be reached"):
        await client.get(PODS, "a")
    await client.close()


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"], ids=["at-once", "in-the-body"]
)
@pytest.mark.parametrize("end", [Reset, ConnectionError])
async def test_the_connection_breaks_before_the_answer_is_whole(part: bytes, end: type[Exception]) -> None:
    async def says(heard: Heard) -> AsyncIterator[bytes]:
        yield part
        raise end

    async with raw_server(says) as server:
        client = client_of(server.url)
        with pytest.raises(Unreachable) as caught:
            await client.create(PODS, pod("a", 1))
        assert not isinstance(caught.value, NoConnection)
        assert len(server.heard) == 1
        await client.close()


async def test_a_stream_that_is_cut_silent_or_broken_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SILENCE_SECONDS", 0.3)
    streams = 0

    async def says(heard: Heard) -> AsyncIterator[bytes]:
        nonlocal streams
        if "watch" not in heard.target:
            yield answer({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod("a", 1)]})
            return
        streams += 1
        since = int(heard.target.split("resourceVersion=")[1].split("&")[0])
        line = event(f"b{since + 1}", since + 1)
        yield STREAM
        yield chunk(line)
        match streams:
            case 1:
                raise Hang
            case 2:
                yield chunk(line[:10])
                raise Reset
            case 3:
                yield chunk(event("half", 99)[:20]) + STREAM_END
            case 4:
                yield STREAM_END
            case _:
                raise Hang

    async with raw_server(says) as server, asyncio.timeout(20):
        client = client_of(server.url)
        async with aclosing(client.watch(PODS)) as changes:
            told = [
                (change.kind.value, change.object["metadata"].get("name"))
                for _ in range(7)
                async for change in one(changes)
            ]
        await client.close()
    assert told == [("ADDED", "a"), ("SYNCED", None), *[("ADDED", f"b{n}") for n in range(2, 7)]]
    since = [
        heard.target.split("resourceVersion=")[1].split("&")[0] for heard in server.heard if "watch" in heard.target
    ]
    assert since == ["1", "2", "3", "4", "5"]


async def one(changes: Any) -> AsyncIterator[Any]:
    yield await anext(changes)


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    async def says(heard: Heard) -> AsyncIterator[bytes]:
        yield answer({"gitVersion": "v1"})
        raise ConnectionError

    async with raw_server(says) as server:
        client = client_of(server.url)
        for _ in range(5):
            await client.text("/version")
            await asyncio.sleep(0.05)
        await client.close()


async def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def says(heard: Heard) -> AsyncIterator[bytes]:
        yield answer({"gitVersion": "v1", "token": heard.headers["authorization"]})

    caplog.set_level(logging.DEBUG)
    clock = SystemClock()
    async with raw_server(says) as server:
        access = CredentialProvider.fixed(server.url, token="s3cret", clock=clock)
        client = KubeClient(access, namespace="llm", clock=clock, retry_seconds=0)
        assert json.loads(await client.text("/version"))["token"] == "Bearer s3cret"
        await client.close()
    assert "GET" in caplog.text
    assert "s3cret" not in caplog.text
