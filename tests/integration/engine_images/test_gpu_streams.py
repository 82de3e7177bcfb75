"""The client of `benchmarks/gpu.sh` against a server that writes what vLLM writes, chunk by chunk."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks.gpu.streams import Endpoint, burst
from tidegate.core.errors import OutsideError

EVENT = '{{"choices": [{{"text": "{text}"}}]}}'
USAGE = '{"choices": [], "usage": {"completion_tokens": 3}}'


@asynccontextmanager
async def engine(*events: str, status: str = "200 OK") -> AsyncIterator[Endpoint]:
    """Answers each request with these events, each a chunk of HTTP."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length
        assert json.loads(await reader.readexactly(int(length[1])))["ignore_eos"]
        writer.write(f"HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for event in events:
            chunk = f"data: {event}\n\n".encode()
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Endpoint(f"http://127.0.0.1:{port}", "bench")


async def test_a_stream_has_a_time_for_each_token_and_the_engines_count() -> None:
    tokens = [EVENT.format(text=text) for text in ("data: {", "b", "\\n")]
    async with engine(*tokens, USAGE, "[DONE]") as endpoint:
        times = await endpoint.stream("Hello", 3)
    assert (times.tokens, len(times.gaps)) == (3, 2)
    assert times.first > 0


async def test_a_burst_asks_as_often_as_it_says() -> None:
    async with engine(EVENT.format(text="a"), USAGE, "[DONE]") as endpoint:
        found = await burst(endpoint, ["Hello"], streams=2, requests=5, first=0, max_tokens=3)
    assert found["tokens_per_second"] > 0
    assert found["ttft_p95_ms"] >= found["ttft_p50_ms"]


@pytest.mark.parametrize(
    ("events", "status", "said"),
    [
        ([EVENT.format(text="a")], "200 OK", "without \\[DONE\\]"),
        ([USAGE, "[DONE]"], "200 OK", "no tokens"),
        ([], "503 Service Unavailable", "503"),
    ],
)
async def test_a_stream_that_is_not_whole_is_an_error(events: list[str], status: str, said: str) -> None:
    async with engine(*events, status=status) as endpoint:
        with pytest.raises(OutsideError, match=said):
            await endpoint.stream("Hello", 3)


async def test_an_engine_that_is_away_is_an_error() -> None:
    async with engine() as endpoint:
        pass
    with pytest.raises(OutsideError, match="broke off"):
        await endpoint.stream("Hello", 3)
