"""One request and its answer: noted part by part while they pass the gate, and read once they are over."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LARGEST_BYTES = 1 << 17
"""Of a request and its answer: a sample of a long context would push out all others."""


@dataclass
class Capture:
    """One request and its answer, noted while they pass."""

    public_key: str
    """Of the one who asked for it."""
    pair: str
    """The same for a request and its mirrored copy."""
    began: float = field(default_factory=time.monotonic)
    request: list[bytes] = field(default_factory=list)
    answer: list[bytes] = field(default_factory=list)
    first: float | None = None
    status: int = 0
    streams: bool = False
    whole: bool = False
    """The last part went out before the client left."""
    _size: int = 0

    def asked(self, body: bytes) -> None:
        """Note a part of the request."""
        self._note(self.request, body)

    def answered(self, body: bytes) -> None:
        """Note a part of the answer, once it is on its way."""
        if self.first is None and body:
            self.first = time.monotonic()
        self._note(self.answer, body)

    def _note(self, parts: list[bytes], body: bytes) -> None:
        self._size += len(body)
        if self.too_large:
            self.request.clear()
            self.answer.clear()
        elif body:
            parts.append(body)

    @property
    def too_large(self) -> bool:
        """Whether it was given up."""
        return self._size > LARGEST_BYTES


@dataclass(frozen=True)
class Exchange:
    """What was asked and answered, in words."""

    prompt: str
    answer: str
    finish_reason: str
    ended: bool
    """It came to its end: a stream says so, an error does not."""
    tokens: int | None = None
    """Of the answer, as the engine counted; of a stream without its count, the parts with text."""


def read_exchange(request: bytes, answer: bytes, *, streams: bool, failed: bool = False) -> Exchange | None:
    """Read bodies of OpenAI's form; of a request that `failed` there is no answer.

    None of what is no exchange of texts: several choices, calls of tools, a form that vLLM does not write.
    """
    try:
        asked = json.loads(request)
        prompt = _prompt(asked)
        if prompt is None or asked.get("n", 1) != 1:
            return None
        if failed:
            return Exchange(prompt, "", "", ended=False)
        if not streams:
            said = json.loads(answer)
            choice = said["choices"][0]
            text = _text(choice.get("message") or choice)
            tokens = (said.get("usage") or {}).get("completion_tokens")
            return None if text is None else Exchange(prompt, text, choice.get("finish_reason") or "", True, tokens)
        return _of_stream(prompt, answer)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _of_stream(prompt: str, answer: bytes) -> Exchange | None:
    texts, reason, ended, counted = [], "", False, None
    # Not `splitlines`: U+2028 and others end no line of a stream of events.
    for line in answer.decode("utf-8", "replace").split("\n"):
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            ended = True
            continue
        event = json.loads(data)
        counted = (event.get("usage") or {}).get("completion_tokens", counted)
        for choice in event.get("choices", ()):
            text = _text(choice.get("delta") or choice)
            if text is None:
                return None
            texts.append(text)
            reason = choice.get("finish_reason") or reason
    tokens = sum(map(bool, texts)) if counted is None else counted
    return Exchange(prompt, "".join(texts), reason, ended, tokens)


def _prompt(asked: Mapping[str, Any]) -> str | None:
    """What was asked: the one message as it is, a conversation with its roles."""
    if "prompt" in asked:
        return asked["prompt"] if isinstance(asked["prompt"], str) else None
    said = [(message["role"], _content(message.get("content"))) for message in asked["messages"]]
    if any(content is None for _, content in said):
        return None
    if [role for role, _ in said] == ["user"]:
        return said[0][1]
    return "\n".join(f"{role}: {content}" for role, content in said)


def _content(content: object) -> str | None:
    """The text of a message; None when there is more than text in it."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        return "".join(part["text"] for part in content)
    return None


def _text(said: Mapping[str, Any]) -> str | None:
    """What an answer, or a part of one, says; None when it calls tools."""
    if said.get("tool_calls"):
        return None
    return said.get("content") or said.get("text") or ""
