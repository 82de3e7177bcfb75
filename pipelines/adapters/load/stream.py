"""How a streamed answer is asked for and measured; knows no HTTP client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gates.evidence.request_record import Failure
from gates.text import OPENING_CHARACTERS
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
        self.finish_reason = ""
        self.first_token: float | None = None
        self.opening = ""
        """The first characters of the answer, as many as tell a refusal; the rest is not kept."""
        self.prompt_tokens: int | None = None
        """As the server counted; None when it did not."""
        self._last_token = 0.0
        self._chunks = 0
        self._usage: int | None = None
        self._entropies = 0.0
        self._entropy_tokens = 0

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

    @property
    def entropy(self) -> float | None:
        """Nats, mean over the tokens whose log probabilities came; None when none did."""
        return self._entropies / self._entropy_tokens if self._entropy_tokens else None

    def _event(self, event: dict[str, Any], at: float) -> None:
        if "error" in event:
            self.broken = True
        usage = event.get("usage")
        # The server sends it last, when it was asked to (`include_usage`).
        if usage:
            self._usage = int(usage["completion_tokens"])
            self.prompt_tokens = usage.get("prompt_tokens")
        for choice in event.get("choices", []):
            text = choice.get("delta", {}).get("content")
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            if text or choice.get("finish_reason"):
                # An answer may be empty; then its end is the first thing that a user gets.
                self.first_token = at if self.first_token is None else self.first_token
            if text:
                self._last_token = at
                self._chunks += 1
                if len(self.opening) < OPENING_CHARACTERS:
                    self.opening = (self.opening + text)[:OPENING_CHARACTERS]
            self._logprobs(choice.get("logprobs"))

    def _logprobs(self, logprobs: dict[str, Any] | None) -> None:
        for token in (logprobs or {}).get("content") or ():
            entropy = token_entropy([likely.get("logprob", math.nan) for likely in token.get("top_logprobs") or ()])
            if entropy is not None:
                self._entropies += entropy
                self._entropy_tokens += 1


def token_entropy(logprobs: Sequence[float]) -> float | None:
    """Entropy in nats of one next token, from the log probabilities of the likeliest ones.

    What they leave over counts as one more token, so this is a lower bound. None when they are no
    log probabilities.
    """
    if not logprobs or any(math.isnan(value) or value > 1e-3 for value in logprobs):
        return None
    shares = [math.exp(value) for value in logprobs]
    rest = max(0.0, 1.0 - sum(shares))
    return -sum(share * math.log(share) for share in (*shares, rest) if share > 0) + 0.0
