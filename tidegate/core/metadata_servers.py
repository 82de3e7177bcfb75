"""Keeps requests to the addresses of a spec away from where clouds hand out credentials to whoever asks.

Names are compared by what was connected to, before anything is sent: neither another notation, nor a name of somebody's
own, nor a resolver that answers otherwise the second time leads there. Behind a proxy only the address itself is known.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from tidegate.core.errors import OutsideError

NAMES = frozenset({"metadata", "metadata.google.internal"})
ALIBABA = IPv4Address("100.100.100.200")
AWS = IPv6Network("fd00:ec2::/32")
NAT64 = IPv6Network("64:ff9b::/96")


def is_metadata_server(host: str) -> bool:
    """Whether a host is link-local or known to hand out credentials, in any notation; resolves nothing."""
    host = host.rstrip(".").lower()
    number = _number(host)
    return host in NAMES or (number is not None and (number.is_link_local or number == ALIBABA or number in AWS))


def _number(host: str) -> IPv4Address | IPv6Address | None:
    try:
        number = ip_address(host)
    except ValueError:
        try:
            # As the C library reads 2852039166, 0xA9FEA9FE and 0251.0376.0251.0376.
            return IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(number, IPv4Address):
        return number
    # ::ffff:169.254.169.254 and its like are the same machine.
    translated = IPv4Address(int(number) & 0xFFFFFFFF) if number in NAT64 else None
    return number.ipv4_mapped or number.sixtofour or translated or number


CONNECTED = "connection.connect_tcp.complete"
"""As httpcore traces it."""


def refuse_metadata_server(host: str) -> None:
    """Raises OutsideError where such a host is named, or was connected to."""
    if is_metadata_server(host):
        raise _refused(host)


def request_hook(is_refused: Callable[[str], bool] = is_metadata_server) -> Callable[[Any], Awaitable[None]]:
    """A hook for `request` of an `httpx.AsyncClient`, which raises OutsideError for a server that is refused."""

    async def look(event: str, info: Mapping[str, Any]) -> None:
        if event == CONNECTED and is_refused(peer := _peer(info["return_value"])):
            await info["return_value"].aclose()
            raise _refused(peer)

    async def hook(request: Any) -> None:
        if is_refused(request.url.host):
            raise _refused(request.url.host)
        request.extensions = {**request.extensions, "trace": look}

    return hook


def _peer(stream: Any) -> str:
    try:
        address, *_ = stream.get_extra_info("server_addr")
    except OSError:
        # It is gone already, and the request fails by itself.
        return ""
    return str(address)


def _refused(address: str) -> OutsideError:
    return OutsideError(
        f"{address} is link-local, or hands out a cloud's credentials: nothing was asked there",
        hint="check the addresses of the spec, and what their names resolve to",
    )
