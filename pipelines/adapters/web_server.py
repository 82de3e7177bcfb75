"""A web application on one address, within a process that has more to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette

from tidegate.core.errors import OutsideError

GRACE_SECONDS = 10
"""That requests in flight have to end."""


@contextmanager
def listening(host: str, port: int) -> Generator[socket.socket, None, None]:
    """A socket there, closed at the end; port 0 is a free one.

    Raises:
        OutsideError: nobody can listen there.
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OutsideError(f"cannot listen on {host}:{port}: {error.strerror}", hint="say another --address") from error
    with listener:
        yield listener


def address_of(listener: socket.socket) -> str:
    """`http://HOST:PORT`."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    """Leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def answering(app: Starlette, listener: socket.socket) -> AsyncIterator[None]:
    """Answer requests within the context; those that came before its end are still answered."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task
