"""The receiver and the live page as one web application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pipelines.page.routes import LivePage
from pipelines.serving import openapi
from pipelines.serving.numbers import Numbers
from pipelines.serving.receiver import MOST_BYTES, STATUS, Outcome, Receiver
from pipelines.serving.reconciler import Reconciler
from registry.triggers.signature import DELIVERY_ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Message

SHOWN = 100
"""Wishes that are listed."""
BODY_SECONDS = 10.0
"""In which a body must have come; MLflow's come in one packet."""


def make_app(receiver: Receiver, reconciler: Reconciler, page: LivePage, *, version: str) -> Starlette:
    """All routes; `version` is tidegate's."""
    numbers = Numbers(receiver, reconciler)
    document = openapi.document(version)

    async def webhook(request: Request) -> Response:
        return _answer(await _taken(request, receiver))

    async def wishes(_: Request) -> Response:
        last = await run_in_threadpool(receiver.inbox.last, SHOWN)
        return JSONResponse([entry.model_dump(mode="json") for entry in last])

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        if reconciler.is_current():
            return JSONResponse({"status": "ok"})
        status = "the registry was not looked at lately"
        return JSONResponse({"status": status}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics(_: Request) -> Response:
        return Response(await run_in_threadpool(numbers.text), media_type="text/plain; version=0.0.4")

    async def described(_: Request) -> Response:
        return JSONResponse(document)

    gets: dict[str, Callable[[Request], Awaitable[Any]]] = {
        openapi.WISHES: wishes,
        openapi.ALIVE: alive,
        openapi.READY: ready,
        openapi.METRICS: metrics,
        openapi.DOCUMENT: described,
    }
    routes = [Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()]
    return Starlette(routes=[Route(openapi.WEBHOOK, webhook, methods=["POST"]), *routes, *page.routes()])


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
