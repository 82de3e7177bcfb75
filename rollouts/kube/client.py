"""The Kubernetes client: one API server and one namespace of it, as `kubectl` would reach them.

Every method raises the errors of `rollouts.errors`: `ApiError` and below for what the server said, `Unreachable` when
it did not answer. A `namespace` of None is the client's own.

Reads are sent again when the server is busy or away, writes only when nothing can have been done (`retry`).
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime

import httpx

from rollouts.errors import (
    ApiError,
    Conflict,
    FleetError,
    Forbidden,
    Invalid,
    NoAccess,
    NoConnection,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from rollouts.kube.credentials import EARLY, ApiServer, Credential, CredentialProvider
from rollouts.kube.objects import at
from rollouts.kube.resources import (
    ACCESS_REVIEWS,
    STRICT,
    AccessReview,
    Body,
    PatchKind,
    Request,
    Resource,
    resource_of,
)
from rollouts.kube.retry import Attempts, RetryPolicy, may_repeat, time_left
from tidegate import __version__
from tidegate.core.clock import Clock
from tidegate.core.model import Json
from tidegate.core.text import json_of
from tidegate.core.threads import call_in_thread
from tidegate.core.units import read_retry_after

RETRY_SECONDS = 20.0
"""No request is retried for longer; an operation above it is repeated for longer, until its deadline."""

TIMEOUT_SECONDS = 30.0
"""Of each write and read; an API server gives up on a request of ours after 60 s."""

MIN_SECONDS = 1.0
"""Of a request that is sent just before its operation's deadline."""

CONNECT_SECONDS = 5.0

KEEP_SECONDS = 20.0
"""An idle connection is closed before any load balancer would close it under a request."""

REREAD = timedelta(minutes=1) + EARLY
"""How long a token from a file is used: client-go reads it again each minute, since the kubelet rotates it in place."""

PLUGIN_SECONDS = 60.0
"""Plugins ask a cloud, for seconds; the official client would wait for ever, and every request with it."""


class KubeClient:
    """A namespace of a cluster. Connections are new when the server's certificates change."""

    def __init__(
        self,
        credentials: CredentialProvider,
        *,
        namespace: str,
        clock: Clock,
        transport: httpx.AsyncBaseTransport | None = None,
        chance: Callable[[], float] = random.random,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """`chance` gives numbers from 0 up to 1, for the pauses between attempts; `transport` replaces the network."""
        self.namespace = namespace
        self.ahead: timedelta | None = None
        """How far the server's clock was ahead of ours at its last answer, within a second; None before the first."""
        self._credentials = credentials
        self._clock = clock
        self._retries = RetryPolicy(clock, seconds=retry_seconds, chance=chance)
        self._transport = transport
        self._clients: dict[ApiServer, httpx.AsyncClient] = {}

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object as it is now."""
        return await self.send(Request("GET", resource, name, namespace))

    async def find(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        """One object as it is now; None when there is none, or no such kind."""
        try:
            return await self.get(resource, name, namespace=namespace)
        except NotFound:
            return None

    async def list(self, resource: Resource, *, labels: str = "", namespace: str | None = None) -> tuple[Json, ...]:
        """All objects that match the selector, each with its `apiVersion` and `kind`, which lists leave out."""
        chosen = {"labelSelector": labels} if labels else {}
        found = await self.send(Request("GET", resource, namespace=namespace, query=chosen))
        if "items" not in found or "metadata" not in found:
            raise Unreachable(
                f"GET {resource.plural}: something answered that is no list",
                hint="check the server in the kubeconfig: a proxy answers",
            )
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return tuple(kind | item for item in found["items"] or ())

    async def allowed(self, question: AccessReview) -> bool:
        """Whether the API server would let us (SelfSubjectAccessReview)."""
        where = self.namespace if question.namespace is None else question.namespace
        kind, place = question.resource, {"namespace": where} if question.resource.namespaced else {}
        attributes = {"verb": question.verb, "group": kind.group, "version": kind.version, "resource": kind.plural}
        attributes |= {"subresource": question.subresource, "name": question.name} | place
        spec = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
        review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
        answer = await self.create(ACCESS_REVIEWS, review)
        return bool(answer["status"]["allowed"])

    async def text(self, path: str) -> str:
        """The plain answer to a GET, such as a controller's metrics through the API's service proxy."""
        answer = await self._answer(f"GET {path}", "GET", path, {"headers": {}}, changes_nothing=True)
        return answer.decode(errors="replace")

    async def create(self, resource: Resource, body: Json) -> Json:
        """Bring a new object; Conflict when its name is taken."""
        return await self.send(Request("POST", resource, body=body, query=STRICT))

    async def replace(self, resource: Resource, body: Json) -> Json:
        """Write the whole object (PUT); Conflict when somebody was faster."""
        return await self.send(Request("PUT", resource, body["metadata"]["name"], body=body, query=STRICT))

    async def apply(self, body: Json, *, force: bool = False, dry_run: bool = False) -> Json:
        """Server-side apply as field manager `tidegate`, with unknown fields refused; `force` takes fields over."""
        resource, name = resource_of(body), body["metadata"]["name"]
        query = STRICT | ({"force": "true"} if force else {}) | ({"dryRun": "All"} if dry_run else {})
        return await self.send(Request("PATCH", resource, name, patch=PatchKind.APPLY, body=body, query=query))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> Json:
        """Change a part; with `metadata.resourceVersion` in a merge patch, Conflict when somebody was faster."""
        return await self.send(Request("PATCH", resource, name, None, subresource, kind, body, STRICT))

    async def delete(self, resource: Resource, name: str) -> None:
        """Ask for its end, dependents in the background; NotFound when it is gone already."""
        await self.send(Request("DELETE", resource, name, query={"propagationPolicy": "Background"}))

    async def send(self, request: Request) -> Json:
        """One request as it is; everything above is built on it."""
        # Such as `PATCH rollouts/support-llm/status`.
        parts = (request.resource.plural, request.name, request.subresource)
        description = f"{request.method} {'/'.join(part for part in parts if part)}"
        said = request.namespace
        if said is None:
            said = at(request.body, "metadata", "namespace") or self.namespace
        path = request.resource.path(said, request.name, request.subresource)
        headers, content = dict(request.headers), None
        if request.body is not None:
            content = json.dumps(request.body, separators=(",", ":"), ensure_ascii=False).encode()
            headers["Content-Type"] = request.patch or "application/json"
        reads = request.method == "GET" or request.resource == ACCESS_REVIEWS or "dryRun" in request.query
        # An empty mapping would drop the query that the path itself has.
        arguments = {"params": request.query or None, "content": content, "headers": headers}
        answer = await self._answer(description, request.method, path, arguments, changes_nothing=reads)
        with suppress(ValueError):
            if isinstance(found := json_of(answer), dict):
                return found
        raise Unreachable(
            f"{description}: something answered that is no API server",
            hint="check the server in the kubeconfig: a proxy or a login page answers",
        )

    async def stream(self, method: str, path: str, *, headers: Mapping[str, str], content: bytes) -> httpx.Response:
        """The answer of what is behind the API server, as it comes, whatever its status; sent once. The caller ends it.

        Raises:
            FleetError: the API server was not reached.
        """
        arguments, credential = {"headers": headers, "content": content}, await self._credentials.credential()
        response = await self._exchange(credential, method, path, arguments, stream=True)
        if response.status_code != 401:
            return response
        await response.aclose()
        return await self._exchange(
            await self._credentials.credential(credential), method, path, arguments, stream=True
        )

    async def close(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    async def _answer(
        self, description: str, method: str, path: str, arguments: Json, *, changes_nothing: bool
    ) -> bytes:
        """Send it, retry while that is safe and in time, and return the whole answer; `arguments` are httpx's."""
        attempts, refused = Attempts(self._retries), None
        while True:
            try:
                credential = await self._credentials.credential(refused)
                response = await self._exchange(credential, method, path, arguments)
                if response.status_code < 400:
                    return response.content
                if response.status_code == 401 and refused is None:
                    # Nothing was done: once more, with a fresh credential.
                    refused = credential
                    continue
                raise refusal(description, response.status_code, response.content, response.headers.get("Retry-After"))
            except FleetError as error:
                refused = None
                if not (may_repeat(error, changes_nothing=changes_nothing) and await attempts.pause(error)):
                    raise

    async def _exchange(
        self, credential: Credential, method: str, path: str, arguments: Json, *, stream: bool = False
    ) -> httpx.Response:
        server, seconds = credential.server, max(MIN_SECONDS, min(TIMEOUT_SECONDS, time_left()))
        headers = arguments["headers"] | {"Accept": "application/json", "User-Agent": f"tidegate/{__version__}"}
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        ours = {
            "headers": headers,
            "timeout": httpx.Timeout(None if stream else seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
            "extensions": {"sni_hostname": server.tls_name} if server.tls_name else {},
        }
        try:
            client = await self._client(server)
            request = client.build_request(method, server.url + path, **arguments | ours)
            response = await client.send(request, stream=stream)
        except (httpx.InvalidURL, httpx.RequestError) as error:
            kind, what, hint = next(row[1:] for row in NO_ANSWER if isinstance(error, row[0]))
            message = f"{server.url} {what.format(seconds=seconds)}"
            raise kind(message, hint=hint, detail=repr(error)) from error
        with suppress(ValueError):
            date = parsedate_to_datetime(response.headers.get("Date", ""))
            self.ahead = date - self._clock.now() if date.tzinfo else self.ahead
        return response

    async def _client(self, server: ApiServer) -> httpx.AsyncClient:
        if found := self._clients.get(server):
            return found
        # Requests of a moment ago may still be on the connections of before; older ones are not.
        while len(self._clients) > 1:
            await self._clients.pop(next(iter(self._clients))).aclose()
        # The official client has read the environment's proxies already; nothing else of it concerns us.
        way: Json = {"transport": self._transport}
        if self._transport is None:
            limits = httpx.Limits(keepalive_expiry=KEEP_SECONDS)
            way = {"verify": _trust(server), "proxy": server.proxy, "limits": limits}
        try:
            self._clients[server] = httpx.AsyncClient(**way, trust_env=False)
            return self._clients[server]
        except (ImportError, ValueError):
            # Without its address, which may have a password.
            raise NoAccess(
                f"the proxy for {server.url} cannot be used", hint="expected http://HOST:PORT or https://HOST:PORT"
            ) from None


def connect(
    context: str | None = None,
    *,
    clock: Clock,
    namespace: str | None = None,
    kubeconfig: str | None = None,
    retry_seconds: float = RETRY_SECONDS,
) -> KubeClient:
    """A client for one namespace of one cluster; nothing is asked before the first request.

    A `context` of None is the current one, or the pod's own cluster where there is no kubeconfig; a `namespace` of None
    the context's. `kubeconfig` overrules `KUBECONFIG`. A request is retried for `retry_seconds`; 0 is a single attempt.

    Raises:
        NoAccess: when no `namespace` is given and there is no such context.
    """
    if not namespace:
        from rollouts.kube.kubeconfig import namespace_of

        namespace = namespace_of(context, kubeconfig=kubeconfig)
    credentials = credential_provider(context, clock=clock, kubeconfig=kubeconfig)
    return KubeClient(credentials, namespace=namespace, clock=clock, retry_seconds=retry_seconds)


def credential_provider(context: str | None, *, clock: Clock, kubeconfig: str | None = None) -> CredentialProvider:
    """The credentials of a context; nothing is read before the first request.

    `kubeconfig` overrules `KUBECONFIG`, and like it may name several files.
    """

    def load() -> Credential:
        # The official client takes a second to load.
        from rollouts.kube.kubeconfig import load_credential

        return load_credential(context, kubeconfig, reread=clock.now() + REREAD)

    async def source() -> Credential:
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                return await call_in_thread(load)
        except TimeoutError:
            raise NoAccess(
                f"the plugin of context {context or 'in use'} gave nothing in {PLUGIN_SECONDS:g} s",
                hint="run it by hand: does it wait for a login?",
            ) from None

    return CredentialProvider(source, clock)


def _trust(server: ApiServer) -> ssl.SSLContext | bool:
    if not server.url.startswith("https:"):
        return False  # without TLS there is nothing to verify, and no authorities need be read
    try:
        trust = ssl.create_default_context(cafile=server.ca_file)
        if server.certificate_file:
            trust.load_cert_chain(server.certificate_file, server.key_file)
    except OSError as error:
        raise NoAccess(
            f"the certificates for {server.url} cannot be used: {error}",
            hint="log in again, or mend the files that the kubeconfig names",
        ) from error
    # From Python 3.13 on strict: authorities of clusters often lack what it asks for, and kubectl takes them.
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not server.verify:
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


LATER = "try again; if it lasts, ask who runs the cluster"
NO_ANSWER: tuple[tuple[tuple[type[Exception], ...], type[FleetError], str, str], ...] = (
    ((httpx.InvalidURL,), NoAccess, "is no address of an API server", "mend `server` in the kubeconfig"),
    (
        (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError),
        NoConnection,
        "cannot be reached",
        "check its address in the kubeconfig, and the network, VPN or proxy to it",
    ),
    ((httpx.ReadTimeout,), Unreachable, "said nothing for {seconds:g} s", LATER),
    ((httpx.RequestError,), Unreachable, "did not answer to the end", LATER),
)
"""What httpx fails with; the first that fits counts."""

KINDS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: TooManyRequests,
}

UNTYPED = "failed to create typed patch object"
"""How API servers up to 1.35 at least begin a bare 500 for an applied object that does not fit its kind's schema.

They type it before they look at `fieldValidation` (`managedfields/internal/structuredmerge.go`: `Apply`).
"""

NO_SUCH_PATH = b"404 page not found"
"""How an API server answers for a kind that it does not serve, as its definition is not there: without a `Status`."""

BODY_CHARACTERS = 2000
"""How much of an answer that is no `Status` is kept for `--debug`."""


def refusal(description: str, status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer of 400 and above; `description` is such as `GET rollouts/support-llm`.

    A refusal has a `Status` body (`k8s.io/apimachinery/pkg/apis/meta/v1.Status`: `reason` is for programs, `message`
    for people), or whatever a proxy before the server said.
    """
    asked = read_retry_after(retry_after)
    try:
        reply = json_of(body)
    except ValueError:
        reply = None
    if not isinstance(reply, dict) or reply.get("kind") != "Status":
        # A proxy or load balancer in between speaks HTML, or nothing.
        unserved = body.strip() == NO_SUCH_PATH
        said = "as API servers do for a kind that they do not serve" if unserved else "not by the API server itself"
        return KINDS.get(status, ApiError)(
            f"{description}: answered {status}, {said}",
            status=status,
            retry_after_seconds=asked,
            detail=body.decode(errors="replace")[:BODY_CHARACTERS] or None,
        )
    status = int(reply.get("code") or status)
    message = str(reply.get("message") or reply.get("reason") or "no reason given")
    kind = Invalid if status == 500 and message.startswith(UNTYPED) else KINDS.get(status, ApiError)
    details = reply.get("details") or {}
    return kind(
        f"{description}: {message}",
        status=status,
        reason=reply.get("reason") or "",
        retry_after_seconds=asked if asked is not None else read_retry_after(details.get("retryAfterSeconds")),
    )
