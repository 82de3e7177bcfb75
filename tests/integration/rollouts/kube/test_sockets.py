"""What goes wrong on a real connection, and how it is told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fakes.kube.server import fixed
from fakes.services.sockets import Hang, Heard, Reset, answer, free_address, raw_server

from rollouts.errors import NoConnection, Unreachable
from rollouts.kube import client as client_module
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import PODS
from tidegate.core.clock import SystemClock


def client_of(url: str) -> KubeClient:
    clock = SystemClock()
    return KubeClient(fixed(url, clock), namespace="llm", clock=clock, retry_seconds=0)


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "llm", "uid": name, "resourceVersion": str(version)}}


async def test_nobody_listens() -> None:
    client = client_of(f"http://{free_address()}")
    with pytest.raises(NoConnection, match="cannot be reached"):
        await client.get(PODS, "a")
    await client.close()


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"], ids=["at-once", "in-the-body"]
)
@pytest.mark.parametrize("end", [Reset, ConnectionError, Hang])
async def test_the_connection_breaks_or_falls_silent_before_the_answer_is_whole(
    part: bytes, end: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(client_module, "MIN_SECONDS", 0.3)

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
        access = fixed(server.url, clock, "s3cret")
        client = KubeClient(access, namespace="llm", clock=clock, retry_seconds=0)
        assert json.loads(await client.text("/version"))["token"] == "Bearer s3cret"
        await client.close()
    assert "GET" in caplog.text
    assert "s3cret" not in caplog.text
