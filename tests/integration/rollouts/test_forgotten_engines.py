"""A proxy forgets an engine only once no route names it: a route that names a forgotten one would answer 503."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from rollouts.adapters.envoy import CONFIRM_SECONDS, Envoy
from rollouts.adapters.sockets import free_port
from rollouts.base import RegionSplit
from rollouts.local.xds import LOOPBACK, STATS_PATH


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    writer.close()
    await writer.wait_closed()


@pytest.fixture
async def split(tmp_path: Path) -> AsyncIterator[tuple[Envoy, dict[str, int]]]:
    """A proxy whose canary gets every request, and the ports of its engines."""
    async with await asyncio.start_server(answer, LOOPBACK, 0) as engine:
        port = engine.sockets[0].getsockname()[1]
        envoy = Envoy(tmp_path, entry_port=free_port())
        await envoy.start()
        ports = {"6": port, "7": port}
        await envoy.swap(RegionSplit(stable="6", canary="7", weight=100), ports)
        yield envoy, ports
        await envoy.stop()


async def test_what_a_route_names_stays_known(split: tuple[Envoy, dict[str, int]]) -> None:
    envoy, _ = split
    await envoy.prune()
    # A file takes Envoy a few milliseconds.
    await asyncio.sleep(0.2)
    async with httpx.AsyncClient(trust_env=False) as user:
        answered = await user.get(envoy.entry)
    assert (answered.status_code, answered.headers["x-tidegate-version"]) == (200, "7")


async def test_what_no_route_names_any_more_is_forgotten(split: tuple[Envoy, dict[str, int]]) -> None:
    envoy, ports = split
    await envoy.swap(RegionSplit(stable="6"), ports)
    await envoy.prune()
    async with httpx.AsyncClient(trust_env=False) as anybody, asyncio.timeout(CONFIRM_SECONDS):
        while 'envoy_cluster_name="canary_7"' in (await anybody.get(f"{envoy.stats}{STATS_PATH}")).text:
            await asyncio.sleep(0.05)
        assert (await anybody.get(envoy.entry)).headers["x-tidegate-version"] == "6"
