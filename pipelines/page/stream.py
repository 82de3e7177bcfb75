"""Server-sent events: what changed since the last of them, as HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipelines.page.model import Picture

RETRY = "retry: 3000\n\n"
"""Milliseconds after which a browser comes back when the connection was lost."""
HEARTBEAT = ": nothing new\n\n"
"""A comment, so that proxies and browsers know that the connection lives."""

_LINE_END = re.compile(r"\r\n|\r|\n")


def changes(known: Mapping[str, str], picture: Picture) -> str:
    """The parts that are not as `known`, each in an element with its id; empty when all are."""
    return "".join(f'<div id="{name}">{html}</div>' for name, html in picture.parts.items() if known.get(name) != html)


def frame(html: str, digest: str) -> str:
    """One event; a browser that lost the connection says `digest` when it comes back, and gets only what is newer."""
    data = "".join(f"data: {line}\n" for line in _LINE_END.split(html))
    return f"id: {digest}\n{data}\n"
