"""The few words of ASGI that a gate needs, without a framework: the same on every version that vLLM brings."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

RETRY_AFTER_SECONDS = 1
"""Another engine answers at once; this one does not come back."""

EVENT_STREAM = b"text/event-stream"


def is_event_stream(start: Message) -> bool:
    """Whether this `http.response.start` begins server-sent events."""
    return any(
        name.lower() == b"content-type" and value.startswith(EVENT_STREAM) for name, value in start.get("headers", ())
    )


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


async def end_stream(send: Send, why: str) -> None:
    """End server-sent events with an error, and the response as HTTP wants it.

    OpenAI's clients raise on the field `error`, Anthropic's on the event's name. No `[DONE]`: the answer is
    not whole.
    """
    event = json.dumps({"type": "error", "error": _error(why)})
    await send({"type": "http.response.body", "body": f"event: error\ndata: {event}\n\n".encode(), "more_body": False})


def _error(why: str) -> dict[str, object]:
    return {"message": why, "type": "service_unavailable", "param": None, "code": 503}
