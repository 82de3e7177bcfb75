"""Answers those who ask whether a process lives and is of use: `/healthz` and `/readyz`, and nothing else."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tidegate.core.adapters.asgi import serving
from tidegate.core.errors import OutsideError


@asynccontextmanager
async def answering(port: int, problem: Callable[[], str]) -> AsyncIterator[int]:
    """Listen on every address while the block lasts; gives the port, a free one for 0.

    `problem` says why the process is of no use now, for `/readyz`, and nothing when it is.

    Raises:
        OutsideError: the port is taken.
    """

    async def lives(_: Request) -> PlainTextResponse:
        return PlainTextResponse("200 OK\n")

    async def is_of_use(_: Request) -> PlainTextResponse:
        why = problem()
        return PlainTextResponse(f"{why or '200 OK'}\n", 503 if why else 200)

    both = socket.has_dualstack_ipv6()
    try:
        family = socket.AF_INET6 if both else socket.AF_INET
        listener = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise OutsideError(f"cannot listen on port {port}: {error}", hint="name another --probes") from error
    app = Starlette(routes=[Route("/healthz", lives), Route("/readyz", is_of_use)])
    with listener:
        async with serving(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"), listener):
            yield int(listener.getsockname()[1])
