"""Who may see what a server of ours shows: the names that it answers to, and a login."""

from __future__ import annotations

import hmac
import ipaddress
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

    def admits(self, headers: Headers, client: str) -> bool:
        """Whether the one who asks may look."""
        number = _number(client)
        proxied = number is not None and any(number in network for network in self.proxies)
        if self.header is not None and proxied and headers.get(self.header):
            return True
        if self.token is not None and hmac.compare_digest(_password(headers).encode(), self.token.encode()):
            return True
        return not self.required


def behind_door(
    routes: Sequence[Route], *, hosts: Collection[str], login: Login, open_to_all: Collection[str]
) -> Starlette:
    """An application that answers by these names, and shows nothing to the one who may not look.

    `open_to_all` are the paths that anybody may ask for by any name: they show nothing.
    """
    door = Middleware(_Door, hosts={host.lower() for host in hosts} | {"localhost"}, login=login, open_=open_to_all)
    return Starlette(routes=list(routes), middleware=[door])


@dataclass(frozen=True)
class _Door:
    """The Host header, the login, and what every answer says to browsers."""

    app: ASGIApp
    hosts: Collection[str]
    login: Login
    open_: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = None if scope["type"] != "http" or scope["path"] in self.open_ else self._refusal(scope)
        await (refusal or self.app)(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers, client = Headers(scope=scope), scope.get("client")
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        # A number is no name: the one who says it has no name that he could lead elsewhere.
        if name.lower() not in self.hosts and _number(name.strip("[]")) is None:
            # Or a page of somebody else's, whose name leads to this address, could read what is shown.
            return PlainTextResponse("not a name of this server; see --host", HTTPStatus.MISDIRECTED_REQUEST)
        if self.login.admits(headers, client[0] if client else ""):
            return None
        asking = {"WWW-Authenticate": 'Basic realm="tidegate", charset="UTF-8"'} if self.login.token else {}
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


def _number(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
