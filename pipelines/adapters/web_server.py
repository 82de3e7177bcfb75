"""A web application on one address, within a process that has more to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from pipelines.adapters.web_limits import Connections, bounded
from tidegate.core.errors import OutsideError, UsageError

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


@dataclass(frozen=True)
class Tls:
    """Where a server's certificate is, and its key."""

    certificate: Path
    key: Path


def address_of(listener: socket.socket, *, tls: Tls | None = None) -> str:
    """`http://HOST:PORT`, or `https://`."""
    host, port = listener.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    """Leaves signals to us."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def answering(
    app: Starlette, listener: socket.socket, *, tls: Tls | None = None, limits: Connections | None = None
) -> AsyncIterator[None]:
    """Answer requests within the context; those that came before its end are still answered.

    Raises:
        UsageError: the certificate or its key cannot be used.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
        http=bounded(limits or Connections()),
        # Who the next proxy says that a client is, anybody could say.
        proxy_headers=False,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    try:
        config.load()
    except OSError as error:
        raise UsageError(f"the certificate or its key cannot be used: {error.strerror or error}") from error
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task
