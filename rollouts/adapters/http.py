"""The one module that knows the HTTP library."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from rollouts.errors import Unreachable

KEEP_SECONDS = 2.0
"""Below the 5 s after which uvicorn closes an idle connection; or a request may meet the close."""


@dataclass(frozen=True)
class HttpReply:
    """What a server said."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        """Whether the server did what it was asked."""
        return self.status < 400

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.text)


class Http:
    """Talks to processes on this machine: over TCP, or over one Unix socket."""

    def __init__(self, socket: Path | None = None) -> None:
        """`socket` is the Unix socket to use whatever the URL says."""
        transport = httpx.AsyncHTTPTransport(
            # Nothing here speaks TLS, and no certificate is believed: to read all takes a tenth of a second.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            uds=str(socket) if socket else None,
            limits=httpx.Limits(keepalive_expiry=KEEP_SECONDS),
        )
        # Proxies of the environment are for the world outside; everything here is on the loopback.
        self._client = httpx.AsyncClient(transport=transport, trust_env=False)

    async def get(self, url: str, *, timeout_seconds: float = 2.0) -> HttpReply:
        """Ask for a page.

        Raises:
            Unreachable: when nothing answered in time.
        """
        return await self._send("GET", url, None, timeout_seconds, {})

    async def post(
        self,
        url: str,
        body: Any = None,
        *,
        timeout_seconds: float | None = 2.0,
        headers: Mapping[str, str] | None = None,
    ) -> HttpReply:
        """Send JSON; no `timeout_seconds` waits for ever.

        Raises:
            Unreachable: when nothing answered in time.
        """
        return await self._send("POST", url, body, timeout_seconds, headers or {})

    async def _send(
        self, method: str, url: str, body: Any, timeout_seconds: float | None, headers: Mapping[str, str]
    ) -> HttpReply:
        try:
            response = await self._client.request(method, url, json=body, timeout=timeout_seconds, headers=headers)
        except httpx.TransportError as error:
            raise Unreachable(
                f"{url} did not answer", hint="check that it runs, and its address", detail=repr(error)
            ) from error
        return HttpReply(response.status_code, response.text)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
