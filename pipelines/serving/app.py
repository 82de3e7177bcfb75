"""The receiver and the live page as web applications: on one address, or on one each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pipelines.page.routes import LivePage
from pipelines.serving import openapi
from pipelines.serving.doors import Door, Login
from pipelines.serving.numbers import Numbers
from pipelines.serving.receiver import MOST_BYTES, STATUS, Outcome, Receiver
from pipelines.serving.reconciler import Reconciler
from registry.triggers.signature import DELIVERY_ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Message

SHOWN = 100
"""Wishes that are listed."""
BODY_SECONDS = 10.0
"""In which a body must have come; MLflow's come in one packet."""


def behind_door(routes: Sequence[Route], *, hosts: Collection[str], login: Login) -> Starlette:
    """An application that answers by these names, and shows nothing to whoever may not look.

    Whoever sends webhooks signs them, and probes are asked by number: both may come by any name, and see nothing.
    """
    everybodys = (openapi.WEBHOOK, openapi.ALIVE, openapi.READY)
    door = Middleware(Door, hosts=hosts, login=login, open_to_all=everybodys)
    return Starlette(routes=list(routes), middleware=[door])


def heard(receiver: Receiver, reconciler: Reconciler) -> list[Route]:
    """What MLflow and probes ask."""

    async def webhook(request: Request) -> Response:
        return _answer(await _taken(request, receiver))

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        if reconciler.is_current():
            return JSONResponse({"status": "ok"})
        status = "the registry was not looked at lately"
        return JSONResponse({"status": status}, HTTPStatus.SERVICE_UNAVAILABLE)

    return [Route(openapi.WEBHOOK, webhook, methods=["POST"]), *_gets({openapi.ALIVE: alive, openapi.READY: ready})]


def shown(receiver: Receiver, reconciler: Reconciler, page: LivePage, version: str) -> list[Route]:
    """What people and their Prometheus ask."""
    numbers = Numbers(receiver, reconciler)
    document = openapi.document(version)

    async def wishes(_: Request) -> Response:
        last = await run_in_threadpool(receiver.inbox.last, SHOWN)
        return JSONResponse([entry.model_dump(mode="json") for entry in last])

    async def metrics(_: Request) -> Response:
        return Response(await run_in_threadpool(numbers.text), media_type="text/plain; version=0.0.4")

    async def described(_: Request) -> Response:
        return JSONResponse(document)

    asked = {openapi.WISHES: wishes, openapi.METRICS: metrics, openapi.DOCUMENT: described}
    return [*_gets(asked), *page.routes()]


def _gets(endpoints: Mapping[str, Callable[[Request], Awaitable[Any]]]) -> list[Route]:
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in endpoints.items()]


async def _taken(request: Request, receiver: Receiver) -> Outcome:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _body(request)
    except (TimeoutError, ClientDisconnect):
        return receiver.count(Outcome.MALFORMED)
    if body is None:
        return receiver.count(Outcome.OVERSIZE)
    message = Message(
        id=request.headers.get(DELIVERY_ID_HEADER, ""),
        timestamp=request.headers.get(TIMESTAMP_HEADER, ""),
        signature=request.headers.get(SIGNATURE_HEADER, ""),
        body=body,
    )
    return await run_in_threadpool(receiver.take, message)


async def _body(request: Request) -> bytes | None:
    """None as soon as it is too large; no more of it is kept than may be."""
    kept = bytearray()
    async for part in request.stream():
        kept += part
        if len(kept) > MOST_BYTES:
            return None
    return bytes(kept)


def _answer(outcome: Outcome) -> Response:
    status = STATUS[outcome]
    # What HTTP wants beside a 401.
    headers = {"WWW-Authenticate": SIGNATURE_HEADER} if status is HTTPStatus.UNAUTHORIZED else None
    return JSONResponse({"outcome": outcome}, status, headers)
