"""Addresses as messages may show them: without who asks, and without what is asked."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_WHO = re.compile(r"(?<=://)[^/?#\s\"'<>]*@")
_WHAT = re.compile(r"[?#].*", re.DOTALL)


def shown(uri: str) -> str:
    """`uri` without a name and password, a query and a fragment."""
    return _WHAT.sub("", without_names(uri))


def without_names(text: str) -> str:
    """`text` with every address in it without a name and password: for words of others, which may hold some."""
    return _WHO.sub("", text)


def host_of(uri: str) -> str:
    """HOST, or HOST:PORT, as an address names it; the address as it is shown when it names none."""
    parts = urlsplit(uri)
    if parts.hostname is None:
        return shown(uri)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host if parts.port is None else f"{host}:{parts.port}"
