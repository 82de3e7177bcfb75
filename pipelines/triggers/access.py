"""Who may see what `serve` shows: the names that it answers to, and a login."""

from __future__ import annotations

import hmac
import ipaddress
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Collection
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.views.page import USER

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


@dataclass(frozen=True)
class Login:
    """How somebody who looks is known; without either, anyone who comes may look."""

    token: str | None = field(default=None, repr=False)
    """A password for everybody: as the password of HTTP's Basic, which browsers ask for, or as a Bearer token."""
    header: str | None = None
    """In which a proxy that people log in at says who it is."""
    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = (
        ipaddress.ip_network("127.0.0.0/8"),
        ipaddress.ip_network("::1/128"),
    )
    """Whose word counts for that; anybody else could write the header himself."""

    @property
    def required(self) -> bool:
        """Whether anybody is refused."""
        return self.token is not None or self.header is not None

    def user(self, headers: Headers, client: str) -> str | None:
        """Who that is; empty for the one who knows the token, and None for the one who may not look."""
        if self.header is not None and _within(client, self.proxies) and headers.get(self.header):
            return headers[self.header]
        if self.token is not None and hmac.compare_digest(_said(headers).encode(), self.token.encode()):
            return ""
        return None if self.required else ""


class Door:
    """Middleware: the Host header, the login, and what every answer says to browsers."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], login: Login, open_to_all: Collection[str]) -> None:
        """`open_to_all` are the paths that anybody may ask for by any name: they show nothing."""
        self._app, self._login, self._open = app, login, frozenset(open_to_all)
        self._hosts = {host.lower() for host in hosts} | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = None if scope["path"] in self._open else self._refusal(scope)
        await (refusal or self._app)(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if not self._is_ours(headers.get("host", "")):
            # Or a page of somebody else's, whose name leads to this address, could read what is shown.
            return PlainTextResponse("not a name of this server; see --host", HTTPStatus.MISDIRECTED_REQUEST)
        client = scope.get("client")
        user = self._login.user(headers, client[0] if client else "")
        if user is None:
            asking = {"WWW-Authenticate": 'Basic realm="tidegate", charset="UTF-8"'} if self._login.token else {}
            return PlainTextResponse("log in to see this", HTTPStatus.UNAUTHORIZED, asking)
        scope[USER] = user
        return None

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        # A number is no name: the one who says it has no name that he could lead elsewhere.
        return name.lower() in self._hosts or _number(name.strip("[]")) is not None


def _said(headers: Headers) -> str:
    kind, _, said = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return said.strip()
    if kind.lower() != "basic":
        return ""
    try:
        return b64decode(said, validate=True).decode().partition(":")[2]
    except (NoBase64, UnicodeDecodeError):
        return ""


def _within(client: str, networks: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    number = _number(client)
    return number is not None and any(number in network for network in networks)


def _number(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
