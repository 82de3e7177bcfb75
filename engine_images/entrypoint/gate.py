"""The gate before vLLM, in vLLM's own server: `--middleware tidegate_entrypoint.gate.EngineGate`.

Who may ask, who is still being answered, and when the engine is ready are decided in the process that answers:
no proxy stands on the way of the tokens. The paths below `/tidegate/` are the gate's own:

    GET /tidegate/ready    200 when users may ask; 503 while the engine warms up, drains or has drained
    GET /tidegate/health   200 when the engine generates; 503 and why when it does not
    GET /tidegate/status   which engine this is, its state, and every factor in which its compile key differs
    POST /tidegate/samples what is kept of users' requests, for the delivery that asked for it (`samples`); with `/end`
                           it is forgotten
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Counter, Gauge

from .answers import (
    OUTCOMES,
    REFUSED,
    App,
    Message,
    OpenAnswers,
    Receive,
    Scope,
    Send,
    refuse,
    reply,
)
from .channel import VARIABLE, Channel, GateSettings
from .journal import EventLog
from .runtime_directory import compiled_files
from .sampling.samples import END_PATH, SAMPLES_PATH, Samples

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
            NoAnswer: it did not happen in time.
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


class RequestMetrics:
    """`tidegate_requests_total{outcome}` and `tidegate_open_requests`."""

    def __init__(self, open_now: Callable[[], int]) -> None:
        """`open_now` tells how many answers are open."""
        self._requests = Counter(
            "tidegate_requests",
            "Requests of users by how their answers ended, as the engine saw it.",
            ["outcome"],
        )
        # Series that exist from the start: an alert on a rate needs the zero before the first error.
        for outcome in OUTCOMES:
            self._requests.labels(outcome)
        Gauge("tidegate_open_requests", "Answers that are open now.").set_function(open_now)

    def add(self, outcome: str) -> None:
        """One more answer ended so."""
        self._requests.labels(outcome).inc()


FOUND, MISSED, NONE = "found", "missed", "none"
"""What became of the compile cache: all was in it, something was compiled, or nothing is compiled at all."""


class StartMetrics:
    """How long the start took, once it is over: `tidegate_engine_start_seconds` and its kin.

    They are not there before: a 0 would be the fastest start of all.
    """

    def __init__(self, settings: GateSettings) -> None:
        self._settings = settings

    def ready(self, loaded: float) -> dict[str, object]:
        """Publish them; `loaded` is when vLLM's server had its engine, on the monotonic clock."""
        start = time.monotonic() - self._settings.began
        load = loaded - self._settings.launched
        cache = self._compile_cache()
        labels = ["compile_cache"]
        starts = Gauge("tidegate_engine_start_seconds", "From the start of process 1 until users may ask.", labels)
        loads = Gauge("tidegate_engine_load_seconds", "From the start of vLLM until its engine is loaded.", labels)
        moment = Gauge("tidegate_engine_ready_timestamp_seconds", "Since when users may ask, in seconds since 1970.")
        starts.labels(cache).set(start)
        loads.labels(cache).set(load)
        moment.set_to_current_time()
        return {"start_seconds": round(start, 2), "load_seconds": round(load, 2), "compile_cache": cache}

    def _compile_cache(self) -> str:
        if self._settings.cache is None:
            return NONE
        files, before = compiled_files(Path(self._settings.cache)), self._settings.compiled_files
        if files > before:
            return MISSED
        return FOUND if before else NONE


ALWAYS = frozenset({"/health", "/metrics", "/ping", "/version"})
"""What is asked about the engine and not of it: answered by vLLM whatever the state."""

WARM_UP_TOKENS = 8
TRY_AGAIN_LATER = 1013
"""Among the codes with which a WebSocket is closed."""

END_SECONDS = 2.0
"""For the errors of answers that were cut to go out."""

WARMING, READY, DRAINING, DRAINED, FAILED = "warming", "ready", "draining", "drained", "failed"

WHY_REFUSED = {
    WARMING: "The engine is warming up; ask again.",
    DRAINING: "The engine is being stopped; ask again.",
    DRAINED: "The engine is being stopped; ask again.",
    FAILED: "The engine did not warm up.",
}


class EngineGate:
    """ASGI middleware around vLLM's application."""

    def __init__(self, app: App) -> None:
        """Called by vLLM when its engine is loaded, before its server listens."""
        self._app = app
        self._settings = GateSettings.from_text(os.environ[VARIABLE])
        self._journal = EventLog(as_json=self._settings.json_logs)
        self._state = WARMING
        self._refuses = True
        self._inside = InProcessClient(app, {})
        self._health = DeepHealth(self._ask_one, every_seconds=self._settings.health_every_seconds)
        self._counts = RequestMetrics(lambda: self._answers.open)
        self._answers = OpenAnswers(progress=self._health.progress, count=self._counts.add)
        self._start = StartMetrics(self._settings)
        self._known: dict[str, object] = {}
        self._samples = Samples(self._settings.samples_file, self._settings.version)
        self._channel: Channel | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._own: dict[str, Callable[[Send], Awaitable[None]]] = {
            "/tidegate/ready": self._answer_ready,
            "/tidegate/health": self._answer_health,
            "/tidegate/status": self._answer_status,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "websocket" and self._refuses:
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
        elif scope["type"] != "http" or (path := scope["path"].rstrip("/")) in ALWAYS:
            await self._app(scope, receive, send)
        elif own := self._own.get(path):
            await own(send)
        elif path in {SAMPLES_PATH, END_PATH}:
            await self._samples.serve(scope, send)
        elif self._refuses:
            self._counts.add(REFUSED)
            await refuse(send, WHY_REFUSED[self._state])
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer a user, and keep a sample of it where one is asked for."""
        capture = self._samples.begin(scope)
        if capture is None:
            await self._answers.serve(self._app, scope, receive, send)
            return
        try:
            await self._answers.serve(self._app, scope, capture.receiving(receive), capture.sending(send))
        finally:
            self._samples.end(capture)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin when the application has started, end with it."""
        self._inside = InProcessClient(self._app, scope)

        async def started(message: Message) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                self._spawn(self._begin())

        await self._app(scope, receive, started)

    async def _begin(self) -> None:
        """Warm up, say so, then do what process 1 asks for."""
        self._spawn(self._samples.follow())
        channel = self._channel = await Channel.over(socket.socket(fileno=self._settings.channel))
        began = time.monotonic()
        try:
            await self._warm_up()
        except NoAnswer as silent:
            self._state = FAILED
            await channel.send({"event": "failed", "reason": str(silent)})
            return
        warm_up = round(time.monotonic() - began, 2)
        if self._state == WARMING:
            self._state, self._refuses = READY, False
            self._known = self._start.ready(loaded=began)
        await channel.send({"event": "ready", "warm_up_seconds": warm_up, **self._known})
        while command := await channel.receive():
            if command["do"] == "drain":
                # Not awaited: a second command may shorten the first one's grace.
                self._spawn(self._drain(command["grace_seconds"], command["linger_seconds"]))

    async def _warm_up(self) -> None:
        """Ask every batch size once: each takes its own path through the engine."""
        for size in self._settings.warm_up:
            asked = (
                self._ask(f"{size} {index}", WARM_UP_TOKENS, self._settings.warm_up_seconds) for index in range(size)
            )
            await asyncio.gather(*asked)

    async def _drain(self, grace_seconds: float, linger_seconds: float) -> None:
        """Refuse new requests, finish open ones, end the rest with an error. Never takes longer than stated."""
        self._state = DRAINING
        self._answers.closing = True
        began, ended_before = time.monotonic(), self._answers.ended
        # Not ready, but not refusing: who has not heard yet that we are going still gets an answer.
        await asyncio.sleep(min(linger_seconds, grace_seconds))
        self._refuses = True
        if not await self._answers.finished(within_seconds=grace_seconds - (time.monotonic() - began)):
            self._answers.cut()
            await self._answers.finished(within_seconds=END_SECONDS)
        self._state = DRAINED
        if self._channel:
            cut, stuck = self._answers.cuts, self._answers.open
            ended = {"finished": self._answers.ended - ended_before - (cut - stuck), "cut": cut, "stuck": stuck}
            await self._channel.send({"event": "drained", **ended, "seconds": round(time.monotonic() - began, 2)})

    async def _answer_ready(self, send: Send) -> None:
        await reply(send, 200 if self._state == READY else 503, {"state": self._state})

    async def _answer_health(self, send: Send) -> None:
        if self._state in {WARMING, FAILED}:
            await reply(send, 503, {"healthy": False, "by": self._state})
            return
        health = await self._health.current()
        known = {"healthy": health.healthy, "by": health.by, "age_seconds": round(health.age_seconds, 2)}
        await reply(send, 200 if health.healthy else 503, known | ({"reason": health.reason} if health.reason else {}))

    async def _answer_status(self, send: Send) -> None:
        now = {"state": self._state, "open": self._answers.open, "samples": self._samples.status()}
        await reply(send, 200, {**now, "start": self._known, **self._settings.engine})

    async def _ask_one(self) -> None:
        await self._ask("health", 1, self._settings.health_within_seconds)

    async def _ask(self, prompt: str, tokens: int, within_seconds: float) -> None:
        await self._inside.complete(prompt, tokens, within_seconds=within_seconds)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._journal.error("the gate failed", reason=f"{type(error).__name__}: {error}")
