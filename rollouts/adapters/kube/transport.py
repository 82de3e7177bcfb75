"""The one module of this folder that knows the HTTP library."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from rollouts.adapters.kube.access import Credential, Server
from rollouts.errors import NoAccess, NoConnection, Unreachable
from tidegate import __version__

Transport = httpx.AsyncBaseTransport
"""What carries requests; tests pass in a server in the same process."""

TIMEOUT = httpx.Timeout(30.0, connect=5.0, pool=5.0)
"""Of each connect, write and read; an API server gives up on a request of ours after 60 s."""

KEEP_SECONDS = 20.0
"""An idle connection is closed before any load balancer would close it under a request."""


@dataclass(frozen=True)
class Call:
    """One HTTP request, without who asks."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    content_type: str | None = None


@dataclass(frozen=True)
class Answer:
    """What a server said."""

    status: int
    body: bytes
    retry_after: str | None = None
    """The header of that name."""
    date: datetime | None = None
    """The header of that name: the server's own clock, in whole seconds."""


class Wire:
    """Connections to one API server; new ones when its certificates change."""

    def __init__(self, transport: Transport | None = None) -> None:
        """`transport` carries everything when given, whatever the server's address."""
        self._transport = transport
        self._clients: dict[Server, httpx.AsyncClient] = {}

    async def ask(self, call: Call, credential: Credential) -> Answer:
        """Send it and read the whole answer, whatever its status.

        Raises:
            NoConnection: nothing was sent.
            Unreachable: it was sent, or part of it, and no answer came.
        """
        async with self._open(call, credential, TIMEOUT) as response:
            return await _read(response)

    @asynccontextmanager
    async def listen(
        self, call: Call, credential: Credential, *, silence_seconds: float
    ) -> AsyncIterator[Answer | AsyncIterator[bytes]]:
        """The lines of an answer without end, as they come; an `Answer` when the status is no success.

        Raises:
            NoConnection: as `ask`.
            Unreachable: as `ask`; while lines are read too, when the stream is cut or nothing came for
                `silence_seconds`.
        """
        timeout = httpx.Timeout(silence_seconds, connect=TIMEOUT.connect, pool=TIMEOUT.pool)
        async with self._open(call, credential, timeout) as response:
            if response.status_code >= 400:
                yield await _read(response)
            else:
                yield _lines(response)

    async def close(self) -> None:
        """Close every connection; streams that are still read are cut."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    @asynccontextmanager
    async def _open(self, call: Call, credential: Credential, timeout: httpx.Timeout) -> AsyncIterator[httpx.Response]:
        server = credential.server
        headers = {"Accept": "application/json", "User-Agent": f"tidegate/{__version__}"}
        if call.content_type:
            headers["Content-Type"] = call.content_type
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        extensions: dict[str, Any] = {"sni_hostname": server.tls_name} if server.tls_name else {}
        try:
            client = await self._client(server)
            async with client.stream(
                call.method,
                server.url + call.path,
                params=dict(call.query) or None,  # httpx takes an empty mapping for the wish to drop the path's own
                content=call.content,
                headers=headers,
                timeout=timeout,
                extensions=extensions,
            ) as response:
                yield response
        except httpx.InvalidURL as error:
            raise NoAccess(f"{server.url} is no address of an API server", detail=repr(error)) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            raise NoConnection(f"{server.url} cannot be reached", detail=repr(error)) from error
        except httpx.ReadTimeout as error:
            raise Unreachable(f"{server.url} said nothing for {timeout.read:g} s", detail=repr(error)) from error
        except httpx.RequestError as error:
            raise Unreachable(f"{server.url} did not answer to the end", detail=repr(error)) from error

    async def _client(self, server: Server) -> httpx.AsyncClient:
        if server not in self._clients:
            # Requests of a moment ago may still be on the connections of before; older ones are not.
            while len(self._clients) > 1:
                await self._clients.pop(next(iter(self._clients))).aclose()
            self._clients[server] = self._new_client(server)
        return self._clients[server]

    def _new_client(self, server: Server) -> httpx.AsyncClient:
        if self._transport:
            return httpx.AsyncClient(transport=self._transport)
        # The official client has read the environment's proxies already; nothing else of it concerns us.
        return httpx.AsyncClient(
            verify=_trust(server),
            proxy=server.proxy,
            limits=httpx.Limits(keepalive_expiry=KEEP_SECONDS),
            trust_env=False,
        )


def _trust(server: Server) -> ssl.SSLContext | bool:
    if not server.url.startswith("https:"):
        return False  # without TLS there is nothing to verify, and no authorities need be read
    try:
        trust = ssl.create_default_context(cafile=server.ca_file)
        if server.certificate_file:
            trust.load_cert_chain(server.certificate_file, server.key_file)
    except OSError as error:
        raise NoAccess(f"the certificates for {server.url} cannot be used: {error}") from error
    # From Python 3.13 on strict: authorities of clusters often lack what it asks for, and kubectl takes them.
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not server.verify:
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return trust


async def _read(response: httpx.Response) -> Answer:
    headers = response.headers
    return Answer(
        response.status_code, await response.aread(), headers.get("Retry-After"), _date(headers.get("Date", ""))
    )


def _date(header: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    return date if date.tzinfo else None


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Whole lines only. Not by httpx, which also splits at characters that JSON may carry, such as U+0085."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
