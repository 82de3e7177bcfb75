"""Asks a judge through any OpenAI-compatible interface.

Nothing of a request or its reply goes into an error or a log: both hold what users wrote, and an
endpoint's error may repeat it, or a part of the key.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import httpx
from pydantic import BaseModel, ValidationError

from gates.adapters.openai import OpenAIClient, wait_seconds
from gates.judge.judge import Judge
from gates.judge.rubric import JudgeReply, JudgeRequest
from gates.judge.spec import JudgeGate
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.text import host_of

AGAIN = (408, 409, 429, *range(500, 600))
"""Statuses of faults that pass."""


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice]


class OpenAIJudge:
    """A `JudgeClient`; close it, it holds connections.

    A request that met 429, 5xx or silence is sent again, each time about twice as late, or when the
    endpoint says.
    """

    def __init__(self, settings: JudgeGate, environment: Mapping[str, str]) -> None:
        """Take the key from `environment`; nothing is asked yet.

        Raises:
            UsageError: when the settings name a variable that is not set.
        """
        key = environment.get(settings.api_key_env, "").strip() if settings.api_key_env else ""
        if settings.api_key_env and not key:
            # Not the name: who mistook the field for the key's own place must not find it in a log.
            raise UsageError(
                "the judge's key is missing: the environment variable that `api_key_env` names is not set",
                hint="set it to the key",
            )
        self._settings = settings
        self._under_way = asyncio.Semaphore(settings.concurrency)
        seconds = settings.timeout.total_seconds()
        self._client = OpenAIClient(settings.endpoint.rstrip("/"), key=key, timeout_seconds=seconds, direct=False)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def ask(self, request: JudgeRequest) -> JudgeReply:
        """As `JudgeClient`."""
        async with self._under_way:
            for attempt in range(self._settings.retries + 1):
                response, hint = None, "is its address right, and does it serve that model?"
                try:
                    response = await self._client.post(f"{self._client.url}/chat/completions", json=self._body(request))
                except httpx.TimeoutException:
                    what = "took too long to answer"
                except httpx.HTTPError:
                    what = "does not answer"
                else:
                    if response.status_code == httpx.codes.OK:
                        return _reply(response.content)
                    what = f"refused with {response.status_code}"
                    if response.status_code in (401, 403):
                        hint = "is its key right, and in the variable that `api_key_env` names?"
                    if response.status_code not in AGAIN:
                        break
                if attempt < self._settings.retries:
                    await asyncio.sleep(wait_seconds(response, attempt))
        raise OutsideError(f"the judge at {host_of(self._settings.endpoint)} {what}", hint=hint) from None

    def _body(self, request: JudgeRequest) -> dict[str, object]:
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
        return {**self._settings.parameters, "model": self._settings.model, "messages": messages}


def _reply(content: bytes) -> JudgeReply:
    """What it says; nothing where it is no completion."""
    try:
        choice = next(iter(_Completion.model_validate_json(content).choices), None)
    except ValidationError:
        choice = None
    if choice is None:
        return JudgeReply(text="")
    refused = bool(choice.message.refusal) or choice.finish_reason == "content_filter"
    return JudgeReply(text=choice.message.content or "", refused=refused)


SEED = 20261121
"""Of a judge's orders and samples; fixed, so that a delivery can be done again."""


@asynccontextmanager
async def judge_of(settings: JudgeGate) -> AsyncIterator[Judge]:
    """The judge of one comparison, whose connections are closed at its end.

    Raises:
        UsageError: as `OpenAIJudge`.
    """
    async with aclosing(OpenAIJudge(settings, os.environ)) as client:
        yield Judge(settings, client, seed=SEED)
