"""Asks an engine through its OpenAI-compatible interface, streaming, always the same way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipelines.ports import Answer
from tidegate.core.errors import OutsideError

# Imported by those who ask: it takes a second, and most steps of a delivery ask no engine.
if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI
    from openai.types.chat import ChatCompletionChunk


class OpenAIChat:
    """A `Chat`. Temperature and seed are 0, so that two answers of one version can be compared."""

    def __init__(self, *, timeout_seconds: float = 60) -> None:
        """`timeout_seconds` is how long an engine may stay silent, before or within an answer."""
        self._timeout_seconds = timeout_seconds

    async def ask(self, url: str, model: str, prompt: str, *, max_tokens: int) -> Answer:
        """Stream one chat completion from the engine at `url` (without `/v1`).

        Raises:
            OutsideError: when the engine is not there, refuses, is too slow, or breaks off.
        """
        async with self._client(f"{url}/v1") as client:
            with _engine_errors(url):
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
            raise OutsideError(f"the engine at {url} broke off its answer after {len(answer.tokens)} tokens")
        return answer

    async def tokenize(self, url: str, model: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens that the engine itself makes of a conversation, generation prompt included.

        Raises:
            OutsideError: as for `ask`.
        """
        body = {"model": model, "messages": list(messages)}
        async with self._client(url) as client:
            with _engine_errors(url):
                answer = await client.post("/tokenize", cast_to=dict[str, Any], body=body)
        return [int(token) for token in answer["tokens"]]

    def _client(self, url: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(
            base_url=url,
            api_key="none",
            # An answer that came only the second time would hide what users see.
            max_retries=0,
            timeout=self._timeout_seconds,
            # Engines are asked directly, whatever proxy the environment has for the world outside.
            http_client=DefaultAsyncHttpxClient(trust_env=False),
        )


async def _collect(stream: AsyncIterator[ChatCompletionChunk], begin: float) -> Answer:
    text, tokens, finish_reason = "", list[int](), ""
    ttft: float | None = None
    async for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            # vLLM's addition to the format; the client keeps fields that it does not know.
            tokens += (choice.model_extra or {}).get("token_ids") or []
            finish_reason = choice.finish_reason or finish_reason
            if ttft is None and (text or finish_reason):
                ttft = time.perf_counter() - begin
    duration = time.perf_counter() - begin
    return Answer(
        text=text,
        tokens=tuple(tokens),
        finish_reason=finish_reason,
        ttft_seconds=duration if ttft is None else ttft,
        duration_seconds=duration,
    )


@contextmanager
def _engine_errors(url: str) -> Iterator[None]:
    from openai import APIError

    try:
        yield
    except APIError as error:
        raise _explained(error, url) from error


def _explained(error: APIError, url: str) -> OutsideError:
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    match error:
        case APITimeoutError():
            what = "took too long to answer"
        case APIConnectionError():
            what = "does not answer"
        case APIStatusError():
            what = f"refused the prompt with {error.status_code}"
        case _:
            what = "broke off its answer"
    return OutsideError(f"the engine at {url} {what}", hint="its log says more", detail=str(error))
