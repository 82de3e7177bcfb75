"""Many streams of one engine at a time, and what they met: tokens a second, TTFT and the time between tokens.

A client that parses every token is slower than a GPU writes them, so this one reads lines and looks at the clock. How
much of a core it took is told: near 1 the client was what limited.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.figures import Quantiles
from tidegate.core.errors import OutsideError

SECONDS = 300.0
"""For one answer; an engine that needs longer is not measured but hangs."""

_EVENT, _DONE = b"data: {", b"data: [DONE]"


@dataclass(frozen=True)
class StreamTimes:
    """What one stream met; seconds from its request."""

    first: float
    gaps: tuple[float, ...]
    """Between what arrived one after the other: a token each, where the client keeps up."""
    tokens: int
    """As the engine counted."""


@dataclass(frozen=True)
class Endpoint:
    """An engine, and the name that it answers to."""

    url: str
    model: str

    async def stream(self, prompt: str, max_tokens: int) -> StreamTimes:
        """One answer of exactly `max_tokens` tokens.

        Raises:
            OutsideError: it refused, broke off, or took too long.
        """
        try:
            async with asyncio.timeout(SECONDS):
                return await self._streamed(prompt, max_tokens)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise OutsideError(
                f"{self.url} broke off: {error or type(error).__name__}", hint="see the engine's log"
            ) from error

    async def _streamed(self, prompt: str, max_tokens: int) -> StreamTimes:
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            began = time.perf_counter()
            writer.write(self._request(prompt, max_tokens, f"{address.hostname}:{address.port}"))
            await writer.drain()
            status = await reader.readline()
            if b" 200 " not in status:
                raise OutsideError(f"{self.url} answers {status.decode(errors='replace').strip()}", hint="see its log")
            return await _read(reader, began)
        finally:
            writer.close()

    def _request(self, prompt: str, max_tokens: int, host: str) -> bytes:
        body = json.dumps(
            {
                "model": self.model,
                "prompt": prompt,
                "max_tokens": max_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "ignore_eos": True,
            }
        ).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


async def _read(reader: asyncio.StreamReader, began: float) -> StreamTimes:
    """Events are told by their lines; the sizes of HTTP's chunks between them are lines as well, and skipped."""
    times: list[float] = []
    last = b""
    while line := await reader.readline():
        if line.startswith(_EVENT):
            times.append(time.perf_counter() - began)
            last = line
        elif line.startswith(_DONE):
            break
    else:
        raise OutsideError("a stream ended without [DONE]", hint="see the engine's log")
    usage = json.loads(last.removeprefix(b"data: ")).get("usage")
    # The last event has the count, and no token.
    arrived = times[:-1]
    if not usage or not arrived:
        raise OutsideError("a stream had no tokens, or no count of them", hint="see the engine's log")
    gaps = tuple(after - before for before, after in pairwise(arrived))
    return StreamTimes(first=arrived[0], gaps=gaps, tokens=int(usage["completion_tokens"]))


async def burst(
    endpoint: Endpoint, prompts: Sequence[str], *, streams: int, requests: int, first: int, max_tokens: int
) -> dict[str, float]:
    """`requests` answers, `streams` of them at a time. `first` numbers them, so that no prompt is asked twice.

    Raises:
        OutsideError: one of them failed.
    """
    gate = asyncio.Semaphore(streams)

    async def one(number: int) -> StreamTimes:
        async with gate:
            # Each its own: a prefix that is cached costs nothing.
            prompt = f"{streams}, {number}: {prompts[number % len(prompts)]}"
            return await endpoint.stream(prompt, max_tokens)

    began, core = time.perf_counter(), time.process_time()
    found = await asyncio.gather(*map(one, range(first, first + requests)))
    seconds = time.perf_counter() - began
    return figures(found, seconds=seconds, core_seconds=time.process_time() - core)


def figures(found: Sequence[StreamTimes], *, seconds: float, core_seconds: float) -> dict[str, float]:
    """Of all streams of one burst that took `seconds`."""
    first = Quantiles.of(stream.first for stream in found)
    gaps = Quantiles.of(gap for stream in found for gap in stream.gaps)
    named = {"ttft_p50_ms": first.p50, "ttft_p95_ms": first.p95, "itl_p50_ms": gaps.p50, "itl_p95_ms": gaps.p95}
    return {
        "tokens_per_second": round(sum(stream.tokens for stream in found) / seconds, 1),
        **{name: round(value * 1000, 2) for name, value in named.items() if value is not None},
        "client_core": round(core_seconds / seconds, 2),
    }


def summed_up(bursts: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The median of each figure, and all of it."""
    return {
        name: {"median": round(median(each[name] for each in bursts), 2), "all": [each[name] for each in bursts]}
        for name in bursts[0]
    }
