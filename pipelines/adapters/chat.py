"""Asks an engine through its OpenAI-compatible interface, streaming, always the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from gates.adapters.openai import OpenAIClient
from gates.model import EngineReply


class _Tokens(BaseModel):
    tokens: list[int]


class OpenAIChat:
    """A `Chat`. Temperature and seed are 0, so that two answers of one version can be compared."""

    def __init__(self, *, timeout_seconds: float = 60) -> None:
        """`timeout_seconds` is how long an engine may stay silent, before or within an answer."""
        self._timeout_seconds = timeout_seconds

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> tuple[EngineReply, tuple[int, ...]]:
        """Stream one chat completion from the engine at `url` (without `/v1`).

        Asked once: an answer that came only the second time would hide what users see.

        Raises:
            BadAnswer: when the engine answers with an error, is too slow, breaks off, or does not speak OpenAI's API.
            OutsideError: when it was not reached.
        """
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": 0,
            "stream": True,
            "return_token_ids": True,
        }
        async with OpenAIClient(url, timeout_seconds=self._timeout_seconds) as client:
            return await client.stream_answer("/v1/chat/completions", body)

    async def tokenize(self, url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens that the engine itself makes of a conversation, generation prompt included.

        Raises:
            BadAnswer, OutsideError: as for `ask`.
        """
        async with OpenAIClient(url, timeout_seconds=self._timeout_seconds) as client:
            return (await client.ask("/tokenize", _Tokens, {"model": model, "messages": list(messages)})).tokens
