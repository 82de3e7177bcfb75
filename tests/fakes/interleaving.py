"""Processes side by side, in an order that a seed decides: each request of each takes some simulated time.

The same seed gives the same story, request by request. Plain code runs in a greenlet, which gives way at each of its
requests as a coroutine does at each await.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from typing import TypeVar

import httpx
from greenlet import getcurrent, greenlet

from fakes.kube.simulated_time import SimulatedTime

Done = TypeVar("Done")


class Interleaving:
    """One story: a time, and how long each request takes in it."""

    def __init__(self, seed: int, *, shortest_seconds: float = 0.01, longest_seconds: float = 2.0) -> None:
        self.seed = seed
        self.time = SimulatedTime()
        self.chance = random.Random(seed)
        self._span = math.log(shortest_seconds), math.log(longest_seconds)

    def latency(self) -> float:
        """Of half a request: mostly short, now and then long."""
        return math.exp(self.chance.uniform(*self._span))

    def turn(self) -> None:
        """For plain code inside `process`: let others go on."""
        self.sleep(self.latency())

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`, for plain code inside `process`."""
        parent = getcurrent().parent
        assert parent is not None, "plain code runs inside `process`"
        parent.switch(seconds)

    async def process(self, work: Callable[[], Done]) -> Done:
        """Run plain code that gives way at each `turn` and `sleep`."""
        child = greenlet(work)
        said = child.switch()
        while not child.dead:
            await self.time.sleep(said)
            said = child.switch()
        result: Done = said
        return result

    def transport(self, inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        """The same way to a server, with requests that take their time."""
        return _Slow(inner, self)


class _Slow(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport, story: Interleaving) -> None:
        self._inner = inner
        self._story = story

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._story.time.sleep(self._story.latency())
        answer = await self._inner.handle_async_request(request)
        # Shielded: a process that is killed while its answer is on the way has made its request.
        await asyncio.shield(self._story.time.sleep(self._story.latency()))
        return answer
