"""Anyone who holds connections, or says half a request, keeps nobody else from an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pipelines.adapters.web_server import Connections, ListenOptions, listening

HALF = b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "


async def alive(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


async def slow(_: Request) -> PlainTextResponse:
    await asyncio.sleep(1.0)
    return PlainTextResponse("late")


@asynccontextmanager
async def server(limits: Connections) -> AsyncIterator[str]:
    app = Starlette(routes=[Route("/", alive), Route("/slow", slow)])
    with listening(ListenOptions("127.0.0.1:0")) as listener:
        async with replace(listener, limits=limits).answering(app):
            yield listener.address


async def held(address: str, said: bytes = HALF) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    await writer.drain()
    return reader, writer


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server cuts it off."""
    try:
        async with asyncio.timeout(20):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_half_a_header_is_cut_off_in_time_also_behind_a_whole_request() -> None:
    async with server(Connections(header_seconds=0.3)) as address:
        for said in (b"", HALF):
            reader, writer = await held(address, said)
            assert await ended(reader)
            writer.close()
        reader, writer = await held(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(HALF)
        assert await ended(reader)
        writer.close()


async def test_an_answer_that_takes_longer_than_a_header_may_is_given() -> None:
    async with server(Connections(header_seconds=0.3)) as address, httpx.AsyncClient(base_url=address) as client:
        assert (await client.get("/slow")).text == "late"


async def test_one_who_holds_connections_is_cut_off_and_gives_them_back() -> None:
    async with server(Connections(all=9, from_one=3)) as address:
        first = [await held(address) for _ in range(3)]
        fourth, last = await held(address)
        assert await ended(fourth)
        last.close()
        for _, writer in first:
            writer.close()
            await writer.wait_closed()
        async with httpx.AsyncClient(base_url=address) as client, asyncio.timeout(20):
            while True:
                try:
                    assert (await client.get("/")).text == "ok"
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
