"""The controller's `/metrics` over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_STARTED = time.time()


async def serve_metrics(metrics: Callable[[], Awaitable[str]], host: str, port: int) -> tuple[asyncio.Server, int]:
    """Answer every GET with them; the server and its port, which for port 0 is a free one."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
            known = path.partition(b"?")[0] == b"/metrics"
            text = await metrics() + _process() if known else "there is /metrics\n"
            status = "200 OK" if known else "404 Not Found"
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(text.encode())}\r\n\r\n{text}".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, OSError):
            pass  # whoever asked is gone, or spoke something else
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, port)
    return server, int(server.sockets[0].getsockname()[1])


def _process() -> str:
    """What client_golang's process collector says too."""
    return f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {_STARTED:.2f}\n"
