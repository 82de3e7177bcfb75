"""Redirects that give nothing away: a token stays with the origin it was given for, and https stays https."""

from __future__ import annotations

from http.client import HTTPMessage
from ipaddress import ip_address
from typing import IO
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from .exits import NotAsBuilt

_PORTS = {"http": 80, "https": 443}


def careful_opener() -> OpenerDirector:
    """As urllib's own, with its proxies, but for redirects."""
    return build_opener(CarefulRedirects)


def on_loopback(host: str | None) -> bool:
    """Whether nobody else is on the line; a name other than `localhost` may mean any address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


class CarefulRedirects(HTTPRedirectHandler):
    """urllib's follows anywhere, and takes every header along."""

    def redirect_request(  # noqa: PLR0917 (the signature is urllib's)
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The next request, or none.

        Raises:
            NotAsBuilt: it would leave https.
        """
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise NotAsBuilt(f"{req.host} redirects from https to {urlsplit(newurl).scheme}; nothing is fetched there")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and _origin(newurl) != _origin(req.full_url):
            # urllib writes headers' names with one capital letter.
            request.headers.pop("Authorization", None)
        return request


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
