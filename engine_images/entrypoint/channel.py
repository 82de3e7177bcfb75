"""How process 1 and the gate talk: JSON lines on a pair of sockets that nobody else can reach, and settings at start.

No port, so that it works when thousands wait for one; no token, so that there is none to steal.

process 1 to gate: `{"do": "drain", "grace_seconds": 30, "linger_seconds": 0, "because": "SIGTERM"}`
gate to process 1: `{"event": "ready", "warm_up_seconds": 0.4, "start_seconds": 24.1, ...}`,
`{"event": "failed", "reason": ...}`, `{"event": "drained", ...}`
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class GateSettings:
    """Everything the gate needs to know."""

    channel: int = -1
    """The file descriptor of its end of the channel."""
    warm_up: tuple[int, ...] = (1,)
    """Batch sizes that are asked once before the engine is ready."""
    warm_up_seconds: float = 600.0
    """For each of these batches."""
    health_every_seconds: float = 10.0
    health_within_seconds: float = 10.0
    json_logs: bool = True
    engine: Mapping[str, object] = field(default_factory=dict)
    """What `/tidegate/status` says of the engine next to the gate's own state."""
    version: str = ""
    """By which a delivery knows this engine: the number of the model version, or what a change of it is called."""
    began: float = 0.0
    """When process 1 began, on the monotonic clock that all processes of a machine share."""
    launched: float = 0.0
    """When it started vLLM, on the same clock."""
    cache: str | None = None
    """The compile cache that vLLM may write to; None for an engine that runs eagerly."""
    compiled_files: int = 0
    """How much was compiled in it before vLLM was started."""
    samples: str | None = None
    """The file in which a delivery says what it asks of users' requests; None for none, ever."""


VARIABLE = "TIDEGATE_GATE"
"""`GateSettings` as JSON, in the environment of vLLM's process."""


class Channel:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        """The channel over one of the two sockets; it closes it."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    async def send(self, message: Mapping[str, object]) -> None:
        """Tell the other end; nothing happens when it is gone."""
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError:
            return

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other end is gone."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return dict(json.loads(line)) if line else None

    def close(self) -> None:
        self._writer.close()
