"""The receiver and the live page as web applications: on one address, or on one each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pipelines.requests import RequestState
from pipelines.triggers import openapi
from pipelines.triggers.access import Door, Login
from pipelines.triggers.receiver import MOST_BYTES, STATUS, Receiver, WebhookStatus
from pipelines.triggers.reconciler import Reconciler
from pipelines.triggers.webhooks import (
    DELIVERY_ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Message,
)
from pipelines.views.page.routes import LivePage


class Numbers(Collector):
    """Computed only when somebody asks."""

    def __init__(self, receiver: Receiver, reconciler: Reconciler, service: str) -> None:
        """`service` is the delivery's name, as series of its engines have it."""
        self._receiver, self._reconciler, self._service = receiver, reconciler, service
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        heard = CounterMetricFamily(
            "tidegate_serve_messages", "Webhook requests by how they ended.", labels=["outcome"]
        )
        for outcome in WebhookStatus:
            heard.add_metric([outcome], self._receiver.heard[outcome])
        yield heard
        standing = self._receiver.inbox.standing(self._receiver.model, self._receiver.alias)
        states = Counter(entry.state for entry in standing)
        requests = GaugeMetricFamily(
            "tidegate_serve_requests", "Requests whose mark stands, by state.", labels=["state"]
        )
        for state in RequestState:
            requests.add_metric([state], states[state])
        yield requests
        failures = CounterMetricFamily("tidegate_serve_look_failures", "Looks at the registry that failed.")
        failures.add_metric([], self._reconciler.failures)
        yield failures
        looked = self._reconciler.looked
        yield GaugeMetricFamily(
            "tidegate_serve_look_timestamp_seconds",
            "When the registry was looked at last and all was well; 0 before the first time.",
            looked.timestamp() if looked else 0,
        )
        yield from self._of_registry()

    def _of_registry(self) -> Iterator[Metric]:
        """Nothing while the registry is silent: what it said before is no word on what it means now."""
        if not self._reconciler.is_current():
            return
        own = [self._service, self._receiver.model]
        aliases = GaugeMetricFamily(
            "tidegate_registry_alias_info",
            "1 for the version that an alias of the registry means.",
            labels=["service", "model", "alias", "version"],
        )
        for alias, version in sorted(self._reconciler.aliases.items()):
            aliases.add_metric([*own, alias, version], 1)
        yield aliases
        running = GaugeMetricFamily(
            "tidegate_registry_delivery_running",
            "1 while a delivery of the model is under way, no matter who started it.",
            labels=["service", "model"],
        )
        running.add_metric(own, self._reconciler.delivers)
        yield running


SHOWN = 100
"""Requests that are listed."""
BODY_SECONDS = 10.0
"""In which a body must have come; MLflow's come in one packet."""


def behind_door(routes: Sequence[Route], *, hosts: Collection[str], login: Login) -> Starlette:
    """An application that answers by these names, and shows nothing to the one who may not look.

    Anyone who sends webhooks signs them, and probes are asked by number: both may come by any name, and see nothing.
    """
    everybodys = (openapi.WEBHOOK, openapi.ALIVE, openapi.READY)
    door = Middleware(Door, hosts=hosts, login=login, open_to_all=everybodys)
    return Starlette(routes=list(routes), middleware=[door])


def receiver_routes(receiver: Receiver, reconciler: Reconciler) -> list[Route]:
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


def page_routes(
    receiver: Receiver, reconciler: Reconciler, page: LivePage, version: str, *, service: str
) -> list[Route]:
    """What people and their Prometheus ask; `service` is the delivery's name."""
    numbers = Numbers(receiver, reconciler, service)
    document = openapi.document(version)

    async def requests(_: Request) -> Response:
        last = await run_in_threadpool(receiver.inbox.last, SHOWN)
        return JSONResponse([entry.model_dump(mode="json") for entry in last])

    async def metrics(_: Request) -> Response:
        return Response(await run_in_threadpool(numbers.text), media_type="text/plain; version=0.0.4")

    async def described(_: Request) -> Response:
        return JSONResponse(document)

    asked = {
        openapi.REQUESTS: requests,
        openapi.METRICS: metrics,
        openapi.DOCUMENT: described,
    }
    return [*_gets(asked), *page.routes()]


def _gets(endpoints: Mapping[str, Callable[[Request], Awaitable[Any]]]) -> list[Route]:
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in endpoints.items()]


async def _taken(request: Request, receiver: Receiver) -> WebhookStatus:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _body(request)
    except (TimeoutError, ClientDisconnect):
        return receiver.count(WebhookStatus.MALFORMED)
    if body is None:
        return receiver.count(WebhookStatus.OVERSIZE)
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


def _answer(outcome: WebhookStatus) -> Response:
    status = STATUS[outcome]
    # What HTTP wants next to a 401.
    headers = {"WWW-Authenticate": SIGNATURE_HEADER} if status is HTTPStatus.UNAUTHORIZED else None
    return JSONResponse({"outcome": outcome}, status, headers)
