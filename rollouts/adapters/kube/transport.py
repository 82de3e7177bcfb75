"""HTTP with an API server: credentials, retries, connections. The one module of this folder that knows httpx."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from rollouts.adapters.kube.credentials import CredentialProvider
from rollouts.adapters.kube.kubeconfig import ApiServer, Credential
from rollouts.errors import FleetError, NoAccess, NoConnection, Unreachable
from rollouts.kube.requests import refusal
from rollouts.kube.retry import RetryPolicy, may_repeat, requested_pause, time_left
from tidegate import __version__

Transport = httpx.AsyncBaseTransport
"""What carries requests; tests pass in a server in the same process."""

TIMEOUT_SECONDS = 30.0
"""Of each write and read; an API server gives up on a request of ours after 60 s."""

MIN_SECONDS = 1.0
"""Of a request that is sent just before its operation's deadline."""

CONNECT_SECONDS = 5.0

KEEP_SECONDS = 20.0
"""An idle connection is closed before any load balancer would close it under a request."""


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request, without credentials."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class HttpClient:
    """Sends HTTP requests to one API server, with credentials and retries; returns successful answers, raises the rest.

    `description` is a request in a few words, for errors. Connections are new when the server's certificates change.
    """

    def __init__(
        self, credentials: CredentialProvider, retries: RetryPolicy, *, transport: Transport | None = None
    ) -> None:
        """`transport` carries everything when given, whatever the server's address."""
        self._credentials = credentials
        self._retries = retries
        self._transport = transport
        self._clients: dict[ApiServer, httpx.AsyncClient] = {}
        self.ahead: timedelta | None = None
        """How far the server's clock was ahead of ours at its last answer, by its Date header; within a second."""

    async def request(self, request: HttpRequest, description: str, *, changes_nothing: bool) -> bytes:
        """Send it, retry while that is safe and in time, and return the whole answer.

        Raises:
            NoConnection: nothing was sent.
            Unreachable: it was sent, or part of it, and no answer came.
            ApiError: the server refused it.
        """
        attempts, refused = self._retries.attempts(), None
        while True:
            try:
                credential = await self._credential(refused)
                seconds = max(MIN_SECONDS, min(TIMEOUT_SECONDS, time_left()))
                with _as_fleet_errors(credential.server, seconds):
                    client = await self._client(credential.server)
                    response = await client.request(**_arguments(request, credential, seconds))
                if date := _date(response.headers.get("Date", "")):
                    self.ahead = date - self._retries.clock.now()
                if response.status_code < 400:
                    return response.content
                if response.status_code == 401 and refused is None:
                    # Nothing was done: once more, with a fresh credential.
                    refused = credential
                    continue
                raise refusal(description, response.status_code, response.content, response.headers.get("Retry-After"))
            except FleetError as error:
                refused = None
                if not may_repeat(error, changes_nothing=changes_nothing) or not await attempts.pause(
                    requested_pause(error)
                ):
                    raise

    async def close(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    async def _credential(self, refused: Credential | None) -> Credential:
        return await (self._credentials.renewed(refused) if refused else self._credentials.credential())

    async def _client(self, server: ApiServer) -> httpx.AsyncClient:
        if server not in self._clients:
            # Requests of a moment ago may still be on the connections of before; older ones are not.
            while len(self._clients) > 1:
                await self._clients.pop(next(iter(self._clients))).aclose()
            self._clients[server] = self._new_client(server)
        return self._clients[server]

    def _new_client(self, server: ApiServer) -> httpx.AsyncClient:
        if self._transport:
            return httpx.AsyncClient(transport=self._transport)
        # The official client has read the environment's proxies already; nothing else of it concerns us.
        return httpx.AsyncClient(
            verify=_trust(server),
            proxy=server.proxy,
            limits=httpx.Limits(keepalive_expiry=KEEP_SECONDS),
            trust_env=False,
        )


def _arguments(request: HttpRequest, credential: Credential, seconds: float) -> dict[str, Any]:
    """What httpx is asked for; `seconds` is how long the server may be silent within its answer."""
    server = credential.server
    headers = {**request.headers, "Accept": "application/json", "User-Agent": f"tidegate/{__version__}"}
    if request.content_type:
        headers["Content-Type"] = request.content_type
    if credential.authorization:
        headers["Authorization"] = credential.authorization
    return {
        "method": request.method,
        "url": server.url + request.path,
        "params": dict(request.query) or None,  # an empty mapping would drop the query that the path itself has
        "content": request.content,
        "headers": headers,
        "timeout": httpx.Timeout(seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
        "extensions": {"sni_hostname": server.tls_name} if server.tls_name else {},
    }


@contextmanager
def _as_fleet_errors(server: ApiServer, seconds: float) -> Iterator[None]:
    try:
        yield
    except httpx.InvalidURL as error:
        raise NoAccess(
            f"{server.url} is no address of an API server", hint="mend `server` in the kubeconfig", detail=repr(error)
        ) from error
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
        raise NoConnection(
            f"{server.url} cannot be reached",
            hint="check its address in the kubeconfig, and the network, VPN or proxy to it",
            detail=repr(error),
        ) from error
    except httpx.ReadTimeout as error:
        raise Unreachable(
            f"{server.url} said nothing for {seconds:g} s",
            hint="try again; if it lasts, ask who runs the cluster",
            detail=repr(error),
        ) from error
    except httpx.RequestError as error:
        raise Unreachable(
            f"{server.url} did not answer to the end",
            hint="try again; if it lasts, ask who runs the cluster",
            detail=repr(error),
        ) from error


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


def _date(header: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    return date if date.tzinfo else None
