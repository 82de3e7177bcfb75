"""Asks vLLM how likely it holds an answer that somebody else wrote."""

from __future__ import annotations

import math

import httpx
from pydantic import BaseModel

from gates.adapters.engine_client import engine_client, engine_errors, post
from gates.errors import BadAnswer


class _Tokens(BaseModel):
    tokens: list[int]


class _Logprob(BaseModel):
    logprob: float


class _Choice(BaseModel):
    prompt_logprobs: list[dict[int, _Logprob] | None]
    """What was there before each token is given; the first token has nothing before it."""


class _Completion(BaseModel):
    choices: list[_Choice]


class EngineLikelihood:
    """A `LogLikelihood`. The engine itself applies its chat template and its tokenizer."""

    def __init__(self, *, timeout_seconds: float = 60) -> None:
        """`timeout_seconds` is how long an engine may stay silent."""
        self._timeout_seconds = timeout_seconds

    async def mean_logprob(self, url: str, model: str, prompt: str, reference: str) -> float:
        """As `LogLikelihood`; the end of the turn after the reference is not asked for."""
        async with engine_client(url, timeout_seconds=self._timeout_seconds) as client:
            with engine_errors(url):
                messages = [{"role": "user", "content": prompt}]
                before = await _tokens(client, url, {"model": model, "messages": messages})
                answer = await _tokens(client, url, {"model": model, "prompt": reference, "add_special_tokens": False})
                body = {
                    "model": model,
                    "prompt": before + answer,
                    # vLLM must generate one token; only those of the prompt are of interest.
                    "max_tokens": 1,
                    "temperature": 0,
                    "prompt_logprobs": 0,
                }
                (choice,) = _Completion.model_validate(await post(client, url, "/v1/completions", body)).choices
        return _mean(choice, len(before), answer, url)


async def _tokens(client: httpx.AsyncClient, url: str, body: dict[str, object]) -> list[int]:
    return _Tokens.model_validate(await post(client, url, "/tokenize", body)).tokens


def _mean(choice: _Choice, begin: int, tokens: list[int], url: str) -> float:
    given = choice.prompt_logprobs[begin:]
    if not tokens or len(given) != len(tokens):
        raise _failed(url, "gave no log-probability for each token of the expected answer")
    logprobs = [at[token].logprob if at and token in at else math.nan for at, token in zip(given, tokens, strict=True)]
    mean = sum(logprobs) / len(logprobs)
    if not math.isfinite(mean):
        raise _failed(url, "gave log-probabilities that are no numbers")
    return mean


def _failed(url: str, what: str) -> BadAnswer:
    return BadAnswer(f"the engine at {url} {what}", hint="its log says more")
