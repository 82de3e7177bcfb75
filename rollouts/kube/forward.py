"""Services of a cluster at an address of this machine, through its API server, as `kubectl proxy` has them.

The API server keeps `Authorization` to itself, so that nothing of a credential reaches an engine. Whoever knows the
address may ask these Services and nothing else; it has a secret in its path, as others work on this machine too.
"""

from __future__ import annotations

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

from rollouts.errors import FleetError
from rollouts.kube.client import KubeClient
from rollouts.kube.objects import at
from rollouts.kube.resources import SERVICES
from tidegate.core.adapters.asgi import serving
from tidegate.core.text import json_of

PASSED = ("content-type", "retry-after", "retry-after-ms")


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
            response = await cluster.stream(request.method, there, headers=headers, content=await request.body())
        except FleetError as error:
            return PlainTextResponse(str(error), 502)
        said = {key: response.headers[key] for key in PASSED if key in response.headers}
        if response.is_success:
            return StreamingResponse(_pieces(response), response.status_code, said)
        body = await response.aread()
        with suppress(ValueError):
            # The API server's own word is none of an engine's.
            if isinstance(found := json_of(body), dict) and found.get("kind") == "Status":
                return PlainTextResponse(f"the API server: {found.get('message')}", 502)
        return Response(body, response.status_code, said)

    app = Starlette(routes=[Route(f"/{secret}/{{service}}/{{path:path}}", answer, methods=["GET", "POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # Who breaks off says so itself; at the end of a delivery nobody waits for an answer any more.
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        async with serving(config, listener):
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/{secret}"
            yield {service: f"{address}/{service}" for service in services}


async def _pieces(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_bytes():
            yield piece
    finally:
        await response.aclose()
