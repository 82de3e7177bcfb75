"""Services of a cluster at an address of this machine, through its API server, as `kubectl proxy` has them.

The API server keeps `Authorization` to itself, so that nothing of a credential reaches an engine. Whoever knows the
address may ask these Services and nothing else; it has a secret in its path, as others work on this machine too.

An API server whose machine is busy breaks some answers off between head and body ("ReverseProxy read error during body
copy: use of closed network connection" in its log, 1.35). Such a question is asked again: nothing of an answer is lost.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from secrets import token_urlsafe

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from rollouts.errors import FleetError, NoConnection
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at
from rollouts.kube.resources import SERVICES
from tidegate.core.adapters.asgi import serving
from tidegate.core.text import json_of

PASSED = ("content-type", "retry-after", "retry-after-ms")
TRIES = 4
PAUSE_SECONDS = 0.5
"""Before an API server that was not reached is tried again."""
KEEP_SECONDS = 60
"""Of an idle connection: those who ask close theirs sooner, or a question might meet the close."""


@asynccontextmanager
async def forwarding(cluster: KubeClient, services: Collection[str]) -> AsyncIterator[Mapping[str, str]]:
    """While the block lasts: by Service the address at which it answers. Nothing is sent before the first request."""
    secret, ports = token_urlsafe(16), dict[str, int]()

    async def answer(request: Request) -> Response:
        service = request.path_params["service"]
        if service not in services:
            return PlainTextResponse("no such Service", 404)
        path = request.scope["raw_path"].decode().split("/", 3)[3]
        query = f"?{request.url.query}" if request.url.query else ""
        headers = {"Content-Type": request.headers.get("content-type", "application/json")}
        try:
            if service not in ports:
                ports[service] = at(await cluster.get(SERVICES, service), "spec", "ports", 0, "port", default=80)
            there = f"{SERVICES.path(cluster.namespace, f'{service}:{ports[service]}', 'proxy')}/{path}{query}"
            response, pieces = await _begun(cluster, request.method, there, headers, await request.body())
        except FleetError as error:
            return PlainTextResponse(str(error), 502)
        said = {key: response.headers[key] for key in PASSED if key in response.headers}
        if response.is_success:
            return StreamingResponse(pieces, response.status_code, said)
        body = b"".join([piece async for piece in pieces])
        with suppress(ValueError):
            # The API server's own word is none of an engine's.
            if isinstance(found := json_of(body), dict) and found.get("kind") == "Status":
                return PlainTextResponse(f"the API server: {found.get('message')}", 502)
        return Response(body, response.status_code, said)

    app = Starlette(routes=[Route(f"/{secret}/{{service}}/{{path:path}}", answer, methods=["GET", "POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Who breaks off says so itself; at the end of a delivery nobody waits for an answer any more.
        config = uvicorn.Config(
            app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, timeout_keep_alive=KEEP_SECONDS
        )
        async with serving(config, listener):
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/{secret}"
            yield {service: f"{address}/{service}" for service in services}


async def _begun(
    cluster: KubeClient, method: str, path: str, headers: Mapping[str, str], content: bytes
) -> tuple[httpx.Response, AsyncIterator[bytes]]:
    """An answer, of which the first piece is there, and all its pieces."""
    why = ""
    for attempt in range(1, TRIES + 1):
        try:
            response = await cluster.stream(method, path, headers=headers, content=content)
        except NoConnection:
            # Nothing was sent.
            if attempt == TRIES:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        rest = response.aiter_bytes()
        try:
            return response, _pieces(await anext(rest, b""), rest, response)
        except httpx.RequestError as error:
            await response.aclose()
            why = repr(error)
    raise FleetError(f"the API server broke off {TRIES} answers before they began", hint="see its log", detail=why)


async def _pieces(first: bytes, rest: AsyncIterator[bytes], response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await response.aclose()
