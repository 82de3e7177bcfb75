"""Users who stream chats through a region's entry, and count what was cut."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import Self

DONE = b"data: [DONE]"


@dataclass(frozen=True)
class Request:
    """One request as its user saw it."""

    started: float
    """Seconds of the monotonic clock."""
    answered: float | None
    """When the first byte came back: the engine had the request by then."""
    role: str | None
    version: str | None
    status: int | None
    """None when there was no answer at all."""
    whole: bool
    """Whether the stream came to its end."""


class Users:
    """Open-loop load: a new user at a fixed pace, whatever the earlier ones wait for."""

    def __init__(
        self,
        entry: str,
        *,
        model: str = "support-llm",
        per_second: float = 40,
        max_tokens: int | None = None,
        regenerates: str | None = None,
        host: str | None = None,
    ) -> None:
        """`regenerates` is the version with whose answers they were not content; `host` is asked for at `entry`."""
        self._address = entry.removeprefix("http://").split(":")
        self._pause = 1 / per_second
        wish = {"model": model, "messages": [{"role": "user", "content": "Hello!"}], "stream": True}
        body = json.dumps(wish | ({"max_tokens": max_tokens} if max_tokens else {})).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host or entry.removeprefix('http://')}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        )
        head += f"x-tidegate-regenerates: {regenerates}\r\n\r\n" if regenerates else "\r\n"
        self._message = head.encode() + body
        self._in_flight: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []

    async def __aenter__(self) -> Self:
        self._arrivals = asyncio.create_task(self._arrive())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._arrivals.cancel()
        await asyncio.gather(self._arrivals, return_exceptions=True)
        await asyncio.gather(*self._in_flight)

    @property
    def failed(self) -> list[Request]:
        """Requests that got an error, or no whole stream."""
        return [request for request in self.requests if request.status != 200 or not request.whole]

    def by_role(self) -> Counter[str | None]:
        """How many requests each role answered."""
        return Counter(request.role for request in self.requests)

    async def _arrive(self) -> None:
        while True:
            task = asyncio.create_task(self._ask())
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            await asyncio.sleep(self._pause)

    async def _ask(self) -> None:
        started = time.monotonic()
        answered, answer = None, b""
        try:
            reader, writer = await asyncio.open_connection(*self._address)
            try:
                writer.write(self._message)
                while piece := await reader.read(65536):
                    answered = answered or time.monotonic()
                    answer += piece
            finally:
                writer.close()
        except OSError:
            # Refused or reset: what came until then says how far it got.
            pass
        self.requests.append(_request(started, answered, answer))


def _request(started: float, answered: float | None, answer: bytes) -> Request:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Request(
        started=started,
        answered=answered,
        role=headers.get("x-tidegate-role"),
        version=headers.get("x-tidegate-version"),
        status=int(first.split()[1]) if first else None,
        whole=DONE in body,
    )
