"""How Envoy counts what breaks: the counters that errors are made of, each against the engine that broke."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gates.evidence.names import BY_PROXY
from rollouts.adapters.envoy import Envoy
from rollouts.adapters.sockets import free_port
from rollouts.base import RegionSplit
from rollouts.local import xds

BEGUN = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n"
TORN, TIMEOUTS = BY_PROXY.cut, BY_PROXY.timeouts
CODE = re.compile(r'envoy_response_code="(\d+)"')


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An engine that does what the path says."""
    path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
    if "begin" in path:
        writer.write(BEGUN)
        await writer.drain()
    if "hang" in path:
        await reader.read()
    if "end" in path:
        writer.write(b"0\r\n\r\n")
    writer.close()
    await writer.wait_closed()


@pytest.fixture
async def envoy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Envoy]:
    monkeypatch.setattr(xds, "STREAM_IDLE_SECONDS", 1)
    async with await asyncio.start_server(answer, xds.LOOPBACK, 0) as engine:
        envoy = Envoy(tmp_path, entry_port=free_port())
        await envoy.start()
        await envoy.swap(RegionSplit(stable="7"), {"7": engine.sockets[0].getsockname()[1]})
        yield envoy
        await envoy.stop()


async def counted(envoy: Envoy, path: str) -> dict[str, int]:
    """The counters of its engine's cluster after one more request; responses under their code."""
    async with httpx.AsyncClient(trust_env=False) as user:
        try:
            await user.get(f"{envoy.entry}/{path}", timeout=60)
        except httpx.RemoteProtocolError:
            """The answer was cut; so is the user's."""
        text = (await user.get(f"{envoy.stats}/stats/prometheus")).text
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, value = line.split("{")[0], line.rsplit(" ", 1)[-1]
        if 'envoy_cluster_name="stable_7"' in line and name in {BY_PROXY.metric, TORN, TIMEOUTS} and value != "0":
            code = CODE.search(line)
            found[code[1] if code else name] = int(value)
    return found


async def test_what_breaks_is_counted_against_its_engine(envoy: Envoy) -> None:
    before: Counter[str] = Counter()
    for path, expected in {
        "begin-end": {"200": 1},
        "cut": {"503": 1, TORN: 1},
        "begin-cut": {"200": 1, TORN: 1},
        "hang": {"504": 1, TIMEOUTS: 1},
        "begin-hang": {"200": 1, TIMEOUTS: 1},
    }.items():
        now = Counter(await counted(envoy, path))
        assert now - before == expected, path
        before = now
