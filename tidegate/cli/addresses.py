"""Addresses that a person gives to listen at."""

from __future__ import annotations

from tidegate.core.errors import UsageError


def host_and_port(address: str) -> tuple[str, int]:
    """`0.0.0.0:9464` or `[::1]:9464` in its parts; port 0 is a free one.

    Raises:
        UsageError: when it is none.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{address} is no address to listen at", hint="such as 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)
