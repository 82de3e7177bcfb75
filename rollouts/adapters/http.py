"""The one module that knows the HTTP library."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx

from rollouts.errors import Unreachable

KEEP_SECONDS = 2.0
"""Below the 5 s after which uvicorn closes an idle connection; or a request may meet the close."""

TIMEOUT_SECONDS = 2.0
"""For an answer, unless a request says otherwise."""


class Http(httpx.AsyncClient):
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
        super().__init__(transport=transport, trust_env=False, timeout=TIMEOUT_SECONDS)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As httpx does.

        Raises:
            Unreachable: when nothing answered in time.
        """
        try:
            return await super().send(request, **options)
        except httpx.TransportError as error:
            raise Unreachable(
                f"{request.url} did not answer", hint="check that it runs, and its address", detail=repr(error)
            ) from error
