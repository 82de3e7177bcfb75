"""Processes side by side, in an order that a seed decides: each request of each takes some simulated time.

The same seed gives the same story, request by request. Plain code runs in a greenlet, which gives way at each of its
requests as a coroutine does at each await; so do threads, where `threads` takes their place.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import httpx
from fakes.clock import SimulatedTime
from greenlet import GreenletExit, getcurrent, greenlet

Done = TypeVar("Done")

LATEST_SECONDS = 8.0
"""A request that its sender has given up may be done that much later."""


class Killed(GreenletExit):
    """`kill -9`: nothing that the process would still do is done, least of all what handles errors.

    Plain code that is waiting when it is killed is never gone on with; what is thrown into it once no one knows it any
    more ends as this too, and greenlets take it for a quiet end.
    """


class Life:
    """One process, from its start until it ends or is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self.asleep_until = 0.0
        """Not scheduled until then, as a suspended machine's; in seconds of the story."""

    def kill(self) -> None:
        """End it at once. A request that has left is on its way still."""
        self.is_over = True

    def go_on(self) -> None:
        """Return while it lives.

        Raises:
            Killed: it does not.
        """
        if self.is_over:
            raise Killed(self.name)


class Interleaving:
    """One story: a time, and how long each request takes in it."""

    def __init__(
        self,
        seed: int,
        *,
        shortest_seconds: float = 0.01,
        longest_seconds: float = 2.0,
        lost: float = 0.0,
        begins_at: float = 0.0,
    ) -> None:
        """`lost` is the share of requests to clusters that get lost, before or after they were done."""
        self.seed = seed
        self.time = SimulatedTime(alone=True)
        self.time.elapsed = begins_at
        self.chance = random.Random(seed)
        self.lost = lost
        self.asking: Life | None = None
        """Whose request a server does at this moment; None when it is the server's own doing."""
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
        if isinstance(said, Killed):
            raise said
        result: Done = said
        return result

    def transport(self, inner: httpx.AsyncBaseTransport, life: Life) -> httpx.AsyncBaseTransport:
        """The way of one process to a server: requests take their time, and some get lost."""
        return _Slow(inner, self, life)

    @property
    def threads(self) -> Callable[..., Thread]:
        """What stands for `threading.Thread`, so that a story has no other order than its own."""
        return lambda target, name="", daemon=True: Thread(self, target)


class Thread:
    """A thread of plain code that runs in the story's own time."""

    def __init__(self, story: Interleaving, target: Callable[[], object]) -> None:
        self._story, self._target = story, target
        self._task: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        with suppress(Killed):
            await self._story.process(self._target)


class _Slow(httpx.AsyncBaseTransport):
    def __init__(self, inner: httpx.AsyncBaseTransport, story: Interleaving, life: Life) -> None:
        self._inner = inner
        self._story = story
        self._life = life

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        story, dice = self._story, self._story.chance
        await self._awake()
        there, back = story.latency(), story.latency()
        fate = dice.choice(("never", "unanswered", "late")) if dice.random() < story.lost else ""
        # Shielded: a request that has left is done, whatever becomes of its sender.
        arrives = asyncio.ensure_future(
            self._arrives(request, there + LATEST_SECONDS * dice.random() * (fate == "late"))
        )
        if fate in ("never", "late"):
            if fate == "never":
                arrives.cancel()
            await story.time.sleep(there)
            await self._awake()
            error = httpx.ConnectError if fate == "never" else httpx.ReadTimeout
            raise error("lost", request=request)
        answer = await asyncio.shield(arrives)
        await story.time.sleep(back)
        await self._awake()
        if fate:
            raise httpx.ReadError("the connection broke", request=request)
        return answer

    async def _awake(self) -> None:
        await self._story.time.sleep(self._life.asleep_until - self._story.time.elapsed)
        self._life.go_on()

    async def _arrives(self, request: httpx.Request, seconds: float) -> httpx.Response:
        await self._story.time.sleep(seconds)
        self._story.asking = self._life
        try:
            return await self._inner.handle_async_request(request)
        finally:
            self._story.asking = None
