"""Asks vLLM how likely it holds an answer that somebody else wrote."""

from __future__ import annotations

import math

from pydantic import BaseModel

from gates.adapters.openai import HINT, OpenAIClient
from gates.errors import BadAnswer


class _Tokens(BaseModel):
    tokens: list[int]


class _Logprob(BaseModel):
    logprob: float


class _Choice(BaseModel):
    prompt_logprobs: list[dict[int, _Logprob] | None]
    """What was there before each token is given; the first token has nothing before it."""


class _Completion(BaseModel):
    choices: tuple[_Choice]


class EngineLikelihood:
    """A `LogLikelihood`. The engine itself applies its chat template and its tokenizer."""

    async def mean_logprob(self, url: str, model: str, prompt: str, reference: str) -> float:
        """As `LogLikelihood`; the end of the turn after the reference is not asked for."""
        async with OpenAIClient(url) as client:
            conversation = {"model": model, "messages": [{"role": "user", "content": prompt}]}
            alone = {"model": model, "prompt": reference, "add_special_tokens": False}
            before = (await client.ask("/tokenize", _Tokens, conversation)).tokens
            answer = (await client.ask("/tokenize", _Tokens, alone)).tokens
            body = {
                "model": model,
                "prompt": before + answer,
                # vLLM must generate one token; only those of the prompt are of interest.
                "max_tokens": 1,
                "temperature": 0,
                "prompt_logprobs": 0,
            }
            (choice,) = (await client.ask("/v1/completions", _Completion, body)).choices
        given = choice.prompt_logprobs[len(before) :]
        if not answer or len(given) != len(answer):
            what = "gave no log-probability for each token of the expected answer"
            raise BadAnswer(f"the engine at {url} {what}", hint=HINT)
        pairs = zip(given, answer, strict=True)
        mean = sum(at[token].logprob if at and token in at else math.nan for at, token in pairs) / len(answer)
        if not math.isfinite(mean):
            raise BadAnswer(f"the engine at {url} gave log-probabilities that are no numbers", hint=HINT)
        return mean
