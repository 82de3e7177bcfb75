"""How process 1 and the gate talk: JSON lines on a pair of sockets that nobody else can reach.

No port, so that it works when thousands wait for one; no token, so that there is none to steal.

process 1 to gate: `{"do": "drain", "grace_seconds": 30, "linger_seconds": 0, "because": "SIGTERM"}`
gate to process 1: `{"event": "ready", ...}`, `{"event": "failed", "reason": ...}`, `{"event": "drained", ...}`
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

VARIABLE = "TIDEGATE_GATE"
"""The gate's orders, as JSON in the environment of vLLM's process; see `orders.Orders`."""


class Channel:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        """The channel over one of the two sockets; it closes it."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    async def say(self, message: Mapping[str, object]) -> None:
        """Tell the other end; nothing happens when it is gone."""
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError:
            return

    async def hear(self) -> dict[str, Any] | None:
        """The next message; None when the other end is gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return dict(json.loads(line)) if line else None

    def close(self) -> None:
        self._writer.close()
