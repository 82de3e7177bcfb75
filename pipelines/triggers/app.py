"""What `tidegate serve` answers besides its page, webhooks among it; and who may ask a server of ours what it shows."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from base64 import b64decode
from binascii import Error as NoBase64
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from pipelines.requests import RequestState
from pipelines.triggers.queue import RequestQueue
from pipelines.triggers.reconciler import Reconciler
from pipelines.triggers.webhooks import (
    DELIVERY_ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    Malformed,
    Message,
    WebhookStatus,
    read,
    reject_reason,
)
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError

MOST_BYTES = 64 * 1024
"""Of a body. MLflow's own are below 6 KB: a tag's value has at most 5000 characters."""


@dataclass
class Receiver:
    """Judges messages for one model and alias."""

    model: str
    alias: str
    secrets: tuple[str, ...] = field(repr=False)
    """With any of which a message may be signed."""
    inbox: RequestQueue
    clock: Clock
    wake: Callable[[], None]
    """Has the registry looked at; called once the inbox has what the message says, from any thread."""
    heard: Counter[WebhookStatus] = field(default_factory=Counter)
    """How many messages ended how."""

    def take(self, headers: Headers, body: bytes | None) -> WebhookStatus:
        """What becomes of a message, of which None is a body that is too large; blocks while the disk writes."""
        if body is None:
            return self.count(WebhookStatus.OVERSIZE)
        said = (headers.get(name, "") for name in (DELIVERY_ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
        id_, timestamp, signature = said
        return self.count(self._judged(Message(id_, timestamp, signature, body)))

    def count(self, outcome: WebhookStatus) -> WebhookStatus:
        """Note an answer, also one that was clear before the message was whole."""
        self.heard[outcome] += 1
        return outcome

    def _judged(self, message: Message) -> WebhookStatus:
        now = self.clock.now()
        if (why := reject_reason(message, self.secrets, now)) is not None:
            return why
        try:
            model, request = read(message.body)
        except Malformed:
            return WebhookStatus.MALFORMED
        if request is not None and (request.model, request.alias) != (self.model, self.alias):
            wanted, concerns = None, False
        else:
            # Without a request a mark was taken away from a version, perhaps of ours.
            wanted, concerns = request, model == self.model
        try:
            taken = self.inbox.hear(message.id, wanted, now)
        except OutsideError:
            return WebhookStatus.UNAVAILABLE
        if taken is WebhookStatus.NOTED and not concerns:
            return WebhookStatus.UNKNOWN_MODEL if model not in (None, self.model) else WebhookStatus.IGNORED
        if taken in (WebhookStatus.QUEUED, WebhookStatus.NOTED):
            self.wake()
        return taken


_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def behind_door(
    routes: Sequence[Route], *, hosts: Collection[str], password: str | None, open_to_all: Collection[str]
) -> Starlette:
    """An application that answers by these names, and shows nothing to the one who may not look.

    Args:
        routes: what is answered.
        hosts: the names.
        password: what one must know, as the password of HTTP's Basic, which browsers ask for, or as a Bearer token;
            without it, anyone who comes may look.
        open_to_all: the paths that anybody may ask for by any name: they show nothing.
    """
    names = {host.lower() for host in hosts} | {"localhost"}

    # Not by its arguments, which a text of the application would show.
    def door(app: ASGIApp) -> ASGIApp:
        return _Door(app, names, password, open_to_all)

    return Starlette(routes=list(routes), middleware=[Middleware(door)])


@dataclass(frozen=True)
class _Door:
    """The Host header, the password, and what every answer says to browsers."""

    app: ASGIApp
    hosts: Collection[str]
    password: str | None = field(repr=False)
    open_: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sealed(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = None if scope["type"] != "http" or scope["path"] in self.open_ else self._refusal(scope)
        await (refusal or self.app)(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        # A number is no name: the one who says it has no name that he could lead elsewhere.
        if name.lower() not in self.hosts and not is_ip_address(name.strip("[]")):
            # Or a page of somebody else's, whose name leads to this address, could read what is shown.
            return PlainTextResponse("not a name of this server; see --host", HTTPStatus.MISDIRECTED_REQUEST)
        if self.password is None or hmac.compare_digest(_password(headers).encode(), self.password.encode()):
            return None
        asking = {"WWW-Authenticate": 'Basic realm="tidegate", charset="UTF-8"'}
        return PlainTextResponse("log in to see this", HTTPStatus.UNAUTHORIZED, asking)


def _password(headers: Headers) -> str:
    kind, _, said = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return said.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return b64decode(said, validate=True).decode().partition(":")[2]
    except (NoBase64, UnicodeDecodeError):
        return ""


def is_ip_address(text: str) -> bool:
    """Whether it is a number and no name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


WEBHOOK, ALIVE, READY, METRICS = "/webhooks/mlflow", "/healthz", "/readyz", "/metrics"
OPEN_TO_ALL = (WEBHOOK, ALIVE, READY)
"""Anyone who sends webhooks signs them, and probes are asked by number: both may come by any name, and see nothing."""
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
        receiver, looked = self._receiver, self._reconciler.looked
        states = Counter(entry.state for entry in receiver.inbox.standing(receiver.model, receiver.alias))
        heard = CounterMetricFamily(
            "tidegate_serve_messages", "Webhook requests by how they ended.", labels=["outcome"]
        )
        told = "Requests whose mark stands, by state."
        requests = GaugeMetricFamily("tidegate_serve_requests", told, labels=["state"])
        for outcome in WebhookStatus:
            heard.add_metric([outcome], receiver.heard[outcome])
        for state in RequestState:
            requests.add_metric([state], states[state])
        yield from (heard, requests)
        failures = "Looks at the registry that failed."
        yield CounterMetricFamily("tidegate_serve_look_failures", failures, self._reconciler.failures)
        yield GaugeMetricFamily(
            "tidegate_serve_look_timestamp_seconds",
            "When the registry was looked at last and all was well; 0 before the first time.",
            looked.timestamp() if looked else 0,
        )
        # Nothing while the registry is silent: what it said before is no word on what it means now.
        if self._reconciler.is_current():
            yield from self._of_registry()

    def _of_registry(self) -> Iterator[Metric]:
        own, labels = [self._service, self._receiver.model], ["service", "model"]
        told = "1 for the version that an alias of the registry means."
        aliases = GaugeMetricFamily("tidegate_registry_alias_info", told, labels=[*labels, "alias", "version"])
        for alias, version in sorted(self._reconciler.aliases.items()):
            aliases.add_metric([*own, alias, version], 1)
        told = "1 while a delivery of the model is under way, no matter who started it."
        running = GaugeMetricFamily("tidegate_registry_delivery_running", told, labels=labels)
        running.add_metric(own, self._reconciler.delivers)
        yield from (aliases, running)


def receiver_routes(receiver: Receiver, reconciler: Reconciler) -> list[Route]:
    """What MLflow and probes ask."""

    async def webhook(request: Request) -> Response:
        try:
            body = await bounded_body(request, MOST_BYTES)
        except (TimeoutError, ClientDisconnect):
            outcome = receiver.count(WebhookStatus.MALFORMED)
        else:
            outcome = await run_in_threadpool(receiver.take, request.headers, body)
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
