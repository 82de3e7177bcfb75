"""Asks an engine through its OpenAI-compatible interface, streaming, always the same way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import httpx
from pydantic import BaseModel

from gates.adapters.engine_client import collect, engine_client, engine_errors, post, refused
from pipelines.ports import ChatAnswer


class _Tokens(BaseModel):
    tokens: list[int]


class OpenAIChat:
    """A `Chat`. Temperature and seed are 0, so that two answers of one version can be compared."""

    def __init__(self, *, timeout_seconds: float = 60) -> None:
        """`timeout_seconds` is how long an engine may stay silent, before or within an answer."""
        self._timeout_seconds = timeout_seconds

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> ChatAnswer:
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
        async with engine_client(url, timeout_seconds=self._timeout_seconds) as client:
            begin = time.perf_counter()
            with engine_errors(url):
                async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
                    if response.status_code != httpx.codes.OK:
                        raise await refused(url, response)
                    found = await collect(url, response, begin)
        return ChatAnswer(
            text=found.text,
            tokens=found.tokens,
            finish_reason=found.finish_reason,
            ttft_seconds=found.ttft_seconds,
            duration_seconds=found.duration_seconds,
        )

    async def tokenize(self, url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens that the engine itself makes of a conversation, generation prompt included.

        Raises:
            BadAnswer, OutsideError: as for `ask`.
        """
        async with engine_client(url, timeout_seconds=self._timeout_seconds) as client:
            answer = await post(client, url, "/tokenize", {"model": model, "messages": list(messages)})
            with engine_errors(url):
                return _Tokens.model_validate(answer).tokens
