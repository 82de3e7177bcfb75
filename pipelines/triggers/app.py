"""What `tidegate serve` answers besides its page: webhooks, probes, requests and numbers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pipelines.requests import RequestState
from pipelines.triggers.receiver import MOST_BYTES, Receiver
from pipelines.triggers.reconciler import Reconciler
from pipelines.triggers.webhooks import (
    DELIVERY_ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Message,
    WebhookStatus,
)

WEBHOOK, REQUESTS, ALIVE, READY, METRICS = "/webhooks/mlflow", "/requests", "/healthz", "/readyz", "/metrics"
OPEN_TO_ALL = (WEBHOOK, ALIVE, READY)
"""Anyone who sends webhooks signs them, and probes are asked by number: both may come by any name, and see nothing."""
SHOWN = 100
"""Requests that are listed."""
BODY_SECONDS = 10.0
"""In which a body must have come; MLflow's come in one packet."""


async def bounded_body(request: Request, most_bytes: int) -> bytes | None:
    """The body; None as soon as it is too large, and no more of it is kept than may be.

    Raises:
        TimeoutError: it did not come in time.
        ClientDisconnect: nobody waits for an answer.
    """
    kept = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            kept += part
            if len(kept) > most_bytes:
                return None
    return bytes(kept)


def metrics_route(numbers: Collector) -> Route:
    """`/metrics`, computed only when somebody asks."""
    registry = CollectorRegistry()
    registry.register(numbers)

    async def metrics(_: Request) -> Response:
        return Response(await run_in_threadpool(generate_latest, registry), media_type="text/plain; version=0.0.4")

    return Route(METRICS, metrics, methods=["GET"])


class Numbers(Collector):
    """Of `tidegate serve`."""

    def __init__(self, receiver: Receiver, reconciler: Reconciler, service: str) -> None:
        """`service` is the delivery's name, as series of its engines have it."""
        self._receiver, self._reconciler, self._service = receiver, reconciler, service

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
        failures = "Looks at the registry that failed."
        yield CounterMetricFamily("tidegate_serve_look_failures", failures, self._reconciler.failures)
        looked = self._reconciler.looked
        yield GaugeMetricFamily(
            "tidegate_serve_look_timestamp_seconds",
            "When the registry was looked at last and all was well; 0 before the first time.",
            looked.timestamp() if looked else 0,
        )
        # Nothing while the registry is silent: what it said before is no word on what it means now.
        if self._reconciler.is_current():
            yield from self._of_registry()

    def _of_registry(self) -> Iterator[Metric]:
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


def receiver_routes(receiver: Receiver, reconciler: Reconciler) -> list[Route]:
    """What MLflow and probes ask."""

    async def webhook(request: Request) -> Response:
        outcome = await _taken(request, receiver)
        status = outcome.http_status
        # What HTTP wants next to a 401.
        headers = {"WWW-Authenticate": SIGNATURE_HEADER} if status is HTTPStatus.UNAUTHORIZED else None
        return JSONResponse({"outcome": outcome}, status, headers)

    async def ready(_: Request) -> Response:
        if reconciler.is_current():
            return JSONResponse({"status": "ok"})
        status = "the registry was not looked at lately"
        return JSONResponse({"status": status}, HTTPStatus.SERVICE_UNAVAILABLE)

    return [Route(WEBHOOK, webhook, methods=["POST"]), alive_route(), Route(READY, ready, methods=["GET"])]


def alive_route() -> Route:
    """Whether the process answers."""

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return Route(ALIVE, alive, methods=["GET"])


def requests_route(receiver: Receiver) -> Route:
    """The last requests, for programs."""

    async def requests(_: Request) -> Response:
        last = await run_in_threadpool(receiver.inbox.last, SHOWN)
        return JSONResponse([entry.model_dump(mode="json") for entry in last])

    return Route(REQUESTS, requests, methods=["GET"])


async def _taken(request: Request, receiver: Receiver) -> WebhookStatus:
    try:
        body = await bounded_body(request, MOST_BYTES)
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
