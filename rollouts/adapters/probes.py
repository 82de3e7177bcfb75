"""Answers those who ask whether a process lives and is of use: `/healthz` and `/readyz`, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tidegate.core.errors import OutsideError

LONGEST_SECONDS = 5.0
"""For a request to be said."""

LARGEST = 8192
"""Bytes of a request's head."""


@asynccontextmanager
async def answering(port: int, problem: Callable[[], str]) -> AsyncIterator[int]:
    """Listen on every address while the block lasts; gives the port.

    Args:
        port: 0 takes a free one.
        problem: why the process is of no use now, for `/readyz`; empty when it is.

    Raises:
        OutsideError: the port is taken.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                writer.write(_answer(await reader.readuntil(b"\r\n\r\n"), problem))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            # Anyone who asked is gone, or was no probe.
            pass
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, None, port, limit=LARGEST)
    except OSError as error:
        raise OutsideError(f"cannot listen on port {port}: {error}", hint="name another --probes") from error
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def _answer(head: bytes, problem: Callable[[], str]) -> bytes:
    words = head.split(b"\r\n", 1)[0].split()
    path = words[1] if len(words) == 3 and words[0] == b"GET" else b""
    if path == b"/healthz":
        return _said("200 OK", "")
    if path == b"/readyz":
        why = problem()
        return _said("503 Service Unavailable" if why else "200 OK", why)
    return _said("404 Not Found", "")


def _said(status: str, text: str) -> bytes:
    body = f"{text or status}\n".encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
