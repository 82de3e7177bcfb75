"""Asks a judge through any OpenAI-compatible interface.

Nothing of a request or its reply goes into an error or a log: both hold what users wrote, and an
endpoint's error may repeat it, or a part of the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    Omit,
)
from pydantic import BaseModel

from gates.judge.rubric import JudgeReply, JudgeRequest
from gates.judge.spec import JudgeGate
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.metadata_servers import request_hook
from tidegate.core.text import host_of


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice]


class OpenAIJudge:
    """A `JudgeClient`; use it as a context, it holds connections.

    A request that met 429, 5xx or silence is sent again, each time about twice as late, or when the
    endpoint says.
    """

    def __init__(self, settings: JudgeGate, environment: Mapping[str, str]) -> None:
        """Take the key from `environment`; nothing is asked yet.

        Raises:
            UsageError: when the settings name a variable that is not set.
        """
        key = _key(settings, environment)
        self._settings = settings
        self._host = host_of(settings.endpoint)
        self._headers: dict[str, str | Omit] = {} if key else {"Authorization": Omit()}
        self._under_way = asyncio.Semaphore(settings.concurrency)
        self._client = AsyncOpenAI(
            base_url=settings.endpoint,
            api_key=key or "none",
            max_retries=settings.retries,
            timeout=settings.timeout.total_seconds(),
            http_client=DefaultAsyncHttpxClient(event_hooks={"request": [request_hook()]}),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()

    async def ask(self, request: JudgeRequest) -> JudgeReply:
        """As `JudgeClient`."""
        async with self._under_way:
            try:
                found = await self._client.post(
                    "/chat/completions", cast_to=object, body=self._body(request), options={"headers": self._headers}
                )
                choices = _Completion.model_validate(found).choices
            # `from None`: the error as it came may hold the request.
            except APIError as error:
                raise OutsideError(f"the judge at {self._host} {_what(error)}", hint=_hint(error)) from None
            except ValueError:
                return JudgeReply(text="")
        if not choices:
            return JudgeReply(text="")
        message, reason = choices[0].message, choices[0].finish_reason
        return JudgeReply(text=message.content or "", refused=bool(message.refusal) or reason == "content_filter")

    def _body(self, request: JudgeRequest) -> dict[str, object]:
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
        body: dict[str, object] = {**self._settings.parameters, "model": self._settings.model, "messages": messages}
        if self._settings.structured:
            form = {"name": "scores", "strict": True, "schema": dict(request.form)}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body


def _key(settings: JudgeGate, environment: Mapping[str, str]) -> str:
    if settings.api_key_env is None:
        return ""
    key = environment.get(settings.api_key_env, "").strip()
    if not key:
        # Not the name: who mistook the field for the key's own place must not find it in a log.
        raise UsageError(
            "the judge's key is missing: the environment variable that `api_key_env` names is not set",
            hint="set it to the key",
        )
    return key


def _what(error: APIError) -> str:
    match error:
        case APITimeoutError():
            return "took too long to answer"
        case APIConnectionError():
            return "does not answer"
        case APIStatusError():
            return f"refused with {error.status_code}"
        case _:
            return "gave an answer that is none"


def _hint(error: APIError) -> str:
    if isinstance(error, APIStatusError) and error.status_code in (401, 403):
        return "is its key right, and in the variable that `api_key_env` names?"
    return "is its address right, and does it serve that model?"
