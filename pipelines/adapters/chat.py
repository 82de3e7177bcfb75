"""Asks an engine through its OpenAI-compatible interface, streaming, always the same way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from gates.adapters.engine_client import engine_client
from gates.adapters.engine_errors import broke_off, engine_errors
from pipelines.ports import ChatAnswer

# Imported with the client that is asked.
if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk


class _Part(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class _Delta(_Part):
    content: str | None = None


class _Choice(_Part):
    delta: _Delta
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    """vLLM's addition to the format; the client keeps fields that it does not know."""


class _Chunk(_Part):
    choices: list[_Choice]


class _Tokens(BaseModel):
    tokens: list[int]


class OpenAIChat:
    """A `Chat`. Temperature and seed are 0, so that two answers of one version can be compared."""

    def __init__(self, *, timeout_seconds: float = 60) -> None:
        """`timeout_seconds` is how long an engine may stay silent, before or within an answer."""
        self._timeout_seconds = timeout_seconds

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> ChatAnswer:
        """Stream one chat completion from the engine at `url` (without `/v1`).

        Raises:
            BadAnswer: when the engine answers with an error, is too slow, breaks off, or does not speak OpenAI's API.
            OutsideError: when it was not reached.
        """
        async with engine_client(f"{url}/v1", timeout_seconds=self._timeout_seconds) as client:
            with engine_errors(url):
                begin = time.perf_counter()
                stream = await client.chat.completions.create(
                    model=model,
                    messages=[{"role": "user", "content": prompt}],
                    max_tokens=max_tokens,
                    temperature=0,
                    seed=0,
                    stream=True,
                    extra_body={"return_token_ids": True},
                )
                answer = await _collect(stream, begin)
        # A connection that is closed in good order ends a stream without an error.
        if not answer.finish_reason:
            raise broke_off(url, len(answer.tokens))
        return answer

    async def tokenize(self, url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens that the engine itself makes of a conversation, generation prompt included.

        Raises:
            BadAnswer, OutsideError: as for `ask`.
        """
        body = {"model": model, "messages": list(messages)}
        async with engine_client(url, timeout_seconds=self._timeout_seconds) as client:
            with engine_errors(url):
                answer = await client.post("/tokenize", cast_to=object, body=body)
                return _Tokens.model_validate(answer).tokens


async def _collect(stream: AsyncIterator[ChatCompletionChunk], begin: float) -> ChatAnswer:
    text, tokens, finish_reason = "", list[int](), ""
    ttft: float | None = None
    async for chunk in stream:
        # The client itself takes anything for a chunk.
        for choice in _Chunk.model_validate(chunk).choices:
            text += choice.delta.content or ""
            tokens += choice.token_ids or []
            finish_reason = choice.finish_reason or finish_reason
            if ttft is None and (text or finish_reason):
                ttft = time.perf_counter() - begin
    duration = time.perf_counter() - begin
    return ChatAnswer(
        text=text,
        tokens=tuple(tokens),
        finish_reason=finish_reason,
        ttft_seconds=duration if ttft is None else ttft,
        duration_seconds=duration,
    )
