"""Asks the engine from inside its own server: for warm-up, and for proof that it still computes."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .answers import App, Message, Scope

PATH = "/v1/completions"
LEAVE_SECONDS = 1.0
"""For vLLM to notice that nobody waits for its answer any more."""


class NoAnswer(Exception):
    """The engine gave no right answer in time; the message says what it did."""


class InProcessClient:
    """A client without a socket, of the application that the gate stands before."""

    def __init__(self, app: App, lifespan: Scope) -> None:
        """`lifespan` is the scope of the server's start, which carries the application and its state."""
        self._app = app
        self._lifespan = lifespan

    async def complete(self, prompt: str, tokens: int, *, within_seconds: float) -> None:
        """Have `tokens` tokens generated.

        Raises:
            Silent: it did not happen in time.
        """
        exchange = _Exchange({"prompt": prompt, "max_tokens": tokens, "temperature": 0})
        task = asyncio.ensure_future(self._app(self._scope(), exchange.receive, exchange.send))
        done, _ = await asyncio.wait({task}, timeout=within_seconds)
        if not done:
            exchange.gone.set()
            await asyncio.wait({task}, timeout=LEAVE_SECONDS)
            task.cancel()
            raise NoAnswer(f"no answer within {within_seconds:g} s")
        if error := task.exception():
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        if exchange.status != 200:
            raise NoAnswer(f"status {exchange.status}")

    def _scope(self) -> Scope:
        key = os.environ.get("VLLM_API_KEY")
        authorization = [(b"authorization", f"Bearer {key}".encode())] if key else []
        inherited = {name: self._lifespan[name] for name in ("app", "asgi", "state") if name in self._lifespan}
        return {
            **inherited,
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json"), (b"host", b"tidegate"), *authorization],
            "client": None,
            "server": None,
        }


class _Exchange:
    """One request and what came back of it."""

    def __init__(self, body: dict[str, object]) -> None:
        self._body: bytes | None = json.dumps(body).encode()
        self.status = 0
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]


@dataclass(frozen=True)
class EngineHealth:
    """What is known of the engine."""

    healthy: bool
    by: str
    """`traffic`: answers flow; `inference`: it was asked; `starting`: nothing is known yet."""
    age_seconds: float
    reason: str = ""


class DeepHealth:
    """Whether the engine still generates, without loading it with the question.

    Answers that flow are proof enough. Only when none did for a while is one token asked for, once for
    everybody who wants to know, and not again for a while.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[None]],
        *,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask` raises `NoAnswer` when the engine does not answer."""
        self._ask = ask
        self._every_seconds = every_seconds
        self._clock = clock
        self._flowed = -math.inf
        self._known: EngineHealth | None = None
        self._known_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    def progress(self) -> None:
        """A part of an answer went out."""
        self._flowed = self._clock()

    async def current(self) -> EngineHealth:
        """What is known, at most `every_seconds` old."""
        quiet = self._clock() - self._flowed
        if quiet < self._every_seconds:
            return EngineHealth(True, "traffic", quiet)
        age = self._clock() - self._known_at
        if self._known is None or age >= self._every_seconds:
            await self._ask_once()
            age = self._clock() - self._known_at
        assert self._known is not None
        return EngineHealth(self._known.healthy, self._known.by, age, self._known.reason)

    async def _ask_once(self) -> None:
        """Ask, or wait for the one who asks already. Goes on when one who waits leaves."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._inquire())
        await asyncio.shield(self._asking)

    async def _inquire(self) -> None:
        try:
            await self._ask()
            self._known = EngineHealth(True, "inference", 0.0)
        except NoAnswer as silent:
            self._known = EngineHealth(False, "inference", 0.0, str(silent))
        self._known_at = self._clock()
