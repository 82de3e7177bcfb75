"""Asks an engine through its OpenAI-compatible interface how likely it takes tokens to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types import CompletionChoice

from engine_images.compile.logprobs import Scored
from tidegate.core.errors import OutsideError

ANSWER_TOKENS = 16
"""Enough to pass from prefill to decode, which runs other kernels."""

TIMEOUT_SECONDS = 120.0


class CompletionScorer:
    """A `Scorer`. One prompt after the other: what is in a batch changes the last bits of a sum."""

    async def score(self, url: str, model: str, prompts: Sequence[str]) -> tuple[Scored, ...]:
        async with AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            timeout=TIMEOUT_SECONDS,
            max_retries=0,
            # The engine is on this machine, whatever proxy the environment has for the world outside.
            http_client=DefaultAsyncHttpxClient(trust_env=False),
        ) as client:
            return tuple([await _one(client, model, prompt) for prompt in prompts])


async def _one(client: AsyncOpenAI, model: str, prompt: str) -> Scored:
    try:
        answer = await client.completions.create(
            model=model,
            prompt=prompt,
            max_tokens=ANSWER_TOKENS,
            temperature=0,
            logprobs=0,
            extra_body={"prompt_logprobs": 0, "return_tokens_as_token_ids": True},
        )
    except APIError as error:
        raise OutsideError(f"the engine at {client.base_url} gives no log-probabilities: {error.message}") from error
    return _scored(answer.choices[0])


def _scored(choice: CompletionChoice) -> Scored:
    # vLLM's own, beside what OpenAI's API has: for each token of the prompt its id and what is known of it.
    known: list[Mapping[str, Mapping[str, Any]] | None] = (choice.model_extra or {})["prompt_logprobs"]
    logprobs = choice.logprobs
    assert logprobs is not None, "they were asked for"
    return Scored(
        prompt=tuple(float(next(iter(token.values()))["logprob"]) for token in known if token),
        answer=tuple(logprobs.tokens or ()),
        logprobs=tuple(float(value) for value in logprobs.token_logprobs or () if value is not None),
    )
