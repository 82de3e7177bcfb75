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
        async def sealed(message: Message) -> None:
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
