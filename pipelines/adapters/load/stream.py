"""How a streamed answer is asked for and measured; knows no HTTP client."""

from __future__ import annotations

from typing import Any

from gates.evidence.request_record import Failure
from tidegate.core.text import json_of

PATH = "/v1/chat/completions"
HEADERS = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
_PREFIX = b"data:"


def streamed_chat(model: str, prompt: str, *, max_tokens: int) -> dict[str, Any]:
    """The body of a request for one answer, token by token, with the server's own count of them."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class StreamMeter:
    """Fed line by line with the time each arrived, in seconds since the request was sent."""

    def __init__(self) -> None:
        """Nothing has arrived yet."""
        self.done = False
        """`[DONE]` arrived: the stream is complete."""
        self.broken = False
        """The server reported an error within the stream, or sent what is no event."""
        self.first_token: float | None = None
        self._last_token = 0.0
        self._chunks = 0
        self._usage: int | None = None

    def feed(self, line: bytes, at: float) -> None:
        """Take in one line; empty ones and comments separate events and say nothing."""
        if not line.startswith(_PREFIX):
            return
        payload = line.removeprefix(_PREFIX).strip()
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = json_of(payload)
        except ValueError:
            self.broken = True
            return
        self._event(event, at)

    @property
    def failure(self) -> Failure:
        """Of a stream that is over; empty when it was whole."""
        if self.broken:
            return "protocol"
        return "" if self.done else "cut"

    @property
    def output_tokens(self) -> int:
        """As the server counted; else the chunks with text, each of one token or more."""
        return self._chunks if self._usage is None else self._usage

    @property
    def itl_mean(self) -> float | None:
        """Seconds between tokens after the first; None with fewer than two tokens."""
        if self.first_token is None or self.output_tokens < 2:
            return None
        return (self._last_token - self.first_token) / (self.output_tokens - 1)

    def _event(self, event: dict[str, Any], at: float) -> None:
        if "error" in event:
            self.broken = True
        usage = event.get("usage")
        # The server sends it last, when it was asked to (`include_usage`).
        if usage:
            self._usage = int(usage["completion_tokens"])
        for choice in event.get("choices", []):
            text = choice.get("delta", {}).get("content")
            if text or choice.get("finish_reason"):
                # An answer may be empty; then its end is the first thing that a user gets.
                self.first_token = at if self.first_token is None else self.first_token
            if text:
                self._last_token = at
                self._chunks += 1
