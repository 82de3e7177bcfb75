"""The answers that are open in this engine, how each of them ended, and the few words of ASGI that takes.

Without a framework: the same on every version that vLLM brings.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sampling.exchange import Capture

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

RETRY_AFTER_SECONDS = 1
"""Another engine answers at once; this one does not come back."""

EVENT_STREAM = b"text/event-stream"


async def reply(send: Send, status: int, body: Mapping[str, object], *headers: tuple[bytes, bytes]) -> None:
    """A whole answer as JSON."""
    content = json.dumps(body).encode()
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *headers]})
    await send({"type": "http.response.body", "body": content})


async def refuse(send: Send, why: str) -> None:
    """503: ask another engine. In the form in which vLLM and OpenAI write errors."""
    retry = (b"retry-after", str(RETRY_AFTER_SECONDS).encode())
    await reply(send, 503, {"error": _error(why)}, retry, (b"connection", b"close"))


def _error(why: str) -> dict[str, object]:
    return {"message": why, "type": "service_unavailable", "param": None, "code": 503}


OK = "ok"
CLIENT_ERROR = "client_error"
SERVER_ERROR = "server_error"
DISCONNECTED = "disconnected"
"""The client left before its answer was whole; vLLM counts it as a success."""
CUT = "cut"
"""Ended by us with an error, past the grace period."""
REFUSED = "refused"
"""Not begun: the engine was not ready yet, or draining."""
OUTCOMES = (OK, CLIENT_ERROR, SERVER_ERROR, DISCONNECTED, CUT, REFUSED)

ERROR_EVENT = b'data: {"error"'
"""How vLLM tells an error in a stream that began with status 200."""

WHY_CUT = "The engine is being stopped and its grace period is over; ask again."


class OpenAnswer:
    """One request from the first to the last byte of its answer."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, answers: OpenAnswers, capture: Capture | None
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._answers = answers
        self._capture = capture
        self._task = asyncio.current_task()
        self._status = 0
        self._streams = self._whole = self._failed = self._left = self._cut = False

    async def serve(self, app: App) -> None:
        """Let `app` answer; should it be cut meanwhile, tell the client."""
        try:
            await app(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self._cut:
                raise
            _forget_cancellation()
        if self._cut and not self._whole:
            await self._end()

    def cut(self) -> None:
        """End it now. vLLM notices the cancelled task and stops generating."""
        self._cut = True
        if self._task is not None:
            self._task.cancel()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._whole:
            self._left = True
        elif self._capture and message["type"] == "http.request":
            self._capture.asked(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._streams = any(
                name.lower() == b"content-type" and value.startswith(EVENT_STREAM)
                for name, value in message.get("headers", ())
            )
            if self._answers.closing:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        else:
            self._failed = self._failed or message.get("body", b"").startswith(ERROR_EVENT)
            self._whole = not message.get("more_body", False)
            if not self._failed and self._status < 400:
                self._answers.progress()
        await self._send(message)
        if self._capture:
            self._capture.answered(message.get("body", b""))

    def note(self, capture: Capture) -> None:
        """Write down how the answer ended."""
        capture.status, capture.streams = self._status, self._streams
        capture.whole = self._whole and not self._left

    @property
    def outcome(self) -> str:
        if self._cut:
            return CUT
        if self._failed or self._status >= 500:
            return SERVER_ERROR
        if self._left:
            return DISCONNECTED
        if not self._whole:
            return SERVER_ERROR
        return CLIENT_ERROR if self._status >= 400 else OK

    async def _end(self) -> None:
        """The proper end of an answer that is not whole. Without one, the server closes the connection.

        Server-sent events end with an error: OpenAI's clients raise on the field `error`, Anthropic's on the event's
        name. No `[DONE]`: the answer is not whole.
        """
        if self._status == 0:
            await refuse(self._send, WHY_CUT)
        elif self._streams:
            event = json.dumps({"type": "error", "error": _error(WHY_CUT)})
            end = f"event: error\ndata: {event}\n\n".encode()
            await self._send({"type": "http.response.body", "body": end, "more_body": False})


class OpenAnswers:
    """All that are open now."""

    def __init__(self, *, progress: Callable[[], None], count: Callable[[str], None]) -> None:
        """`progress` is called when a part of an answer went out, `count` with the outcome of each answer."""
        self.progress = progress
        self.closing = False
        """Whether clients are told to come back on another connection, which leads to another engine."""
        self.ended = self.cuts = 0
        """How many have ended, ever, and how many of them by us."""
        self._count = count
        self._open: set[OpenAnswer] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    @property
    def open(self) -> int:
        return len(self._open)

    async def serve(self, app: App, scope: Scope, receive: Receive, send: Send, capture: Capture | None = None) -> None:
        """Let `app` answer a request, counted as open meanwhile; `capture` gets a copy of what passes."""
        answer = OpenAnswer(scope, receive, send, self, capture)
        self._open.add(answer)
        self._none_open.clear()
        try:
            await answer.serve(app)
        finally:
            self._open.discard(answer)
            if not self._open:
                self._none_open.set()
            self.ended += 1
            self._count(answer.outcome)
            if capture:
                answer.note(capture)

    async def finished(self, *, within_seconds: float) -> bool:
        """Wait until none is open; False when some still are after that time."""
        try:
            await asyncio.wait_for(self._none_open.wait(), within_seconds)
        except (TimeoutError, asyncio.TimeoutError):  # noqa: UP041 (two classes before Python 3.11)
            return not self._open
        return True

    def cut(self) -> None:
        """End all that are open with an error."""
        self.cuts += len(self._open)
        for answer in self._open:
            answer.cut()


def _forget_cancellation() -> None:
    """The cancellation was ours and has done its work: the task may wait for the client again."""
    task = asyncio.current_task()
    # Before Python 3.11 a task does not remember.
    if task is not None and hasattr(task, "uncancel"):
        task.uncancel()
