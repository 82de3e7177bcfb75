"""Asks engines, and any other OpenAI-compatible endpoint, by HTTP alone: a fault of an engine is told from one of the
way to it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel

from gates.errors import BadAnswer
from gates.model import ChatAnswer
from tidegate.core.errors import OutsideError
from tidegate.core.metadata_servers import request_hook
from tidegate.core.text import is_loopback, json_of

Form = TypeVar("Form", bound=BaseModel)

NOT_REACHED = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
"""Errors that leave the engine out of it: nothing was sent."""
ACCESS = frozenset({401, 403, 407, 429})
"""Anyone who says these lets nobody through to the engine, or not now."""
ROUTE = frozenset({404, 502, 503, 504})
"""A proxy says these when it finds no engine; an engine that says them does so in JSON."""
WORDS = 200
"""Of an engine's own words, as many characters."""
HINT = "its log says more"
LONGEST_WAIT_SECONDS = 30.0


class OpenAIClient(httpx.AsyncClient):
    """Of one address; use it as a context, it holds connections."""

    def __init__(self, url: str, *, timeout_seconds: float = 60, key: str = "", direct: bool = True) -> None:
        """It may stay silent for `timeout_seconds`.

        `key` goes into the header `Authorization` and nowhere else. What is asked `direct`, as engines and this machine
        are, is asked past the proxy that the environment has for the world outside.
        """
        self.url, self._has_key = url, bool(key)
        parts = urlsplit(url)
        super().__init__(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, 10)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=not direct and not is_loopback(parts.hostname or ""),
            # To read the certificates that are believed takes a tenth of a second; without TLS nobody's are.
            verify=True if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            event_hooks={"request": [request_hook()]},
        )

    async def ask(self, path: str, form: type[Form], body: object = None) -> Form:
        """The answer to a POST of `body`, or to a GET without one.

        Raises:
            BadAnswer: it was reached and did not answer as an engine does.
            OutsideError: it was not reached, or whatever stands before it let nobody through.
        """
        with self._errors():
            response = await self.request("GET" if body is None else "POST", f"{self.url}{path}", json=body)
            if response.status_code != httpx.codes.OK:
                raise await self._refused(response)
            return form.model_validate_json(response.content)

    async def stream_answer(self, path: str, body: object, *, retries: int = 0) -> ChatAnswer:
        """A streamed answer, with its tokens where the engine was asked for them, as vLLM's addition to the format is.

        One that met 429 is asked for so many times more, ever later: who lets few through says nothing of the model.

        Raises:
            BadAnswer, OutsideError: as for `ask`.
        """
        for attempt in range(retries + 1):
            begin = time.perf_counter()
            with self._errors():
                async with self.stream("POST", f"{self.url}{path}", json=body) as response:
                    if response.status_code == httpx.codes.OK:
                        return await self._collected(response, begin)
                    if response.status_code != httpx.codes.TOO_MANY_REQUESTS or attempt == retries:
                        raise await self._refused(response)
            await asyncio.sleep(wait_seconds(response, attempt))
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Name what went wrong."""
        try:
            yield
        except NOT_REACHED as error:
            reason = _in_short(str(error)) or type(error).__name__
            message = f"the engine at {self.url} does not answer: {reason}"
            raise OutsideError(message, hint="check that the address leads to it") from error
        except httpx.HTTPError as error:
            what = "took too long to answer" if isinstance(error, httpx.TimeoutException) else "broke off its answer"
            raise self._bad(what, detail=str(error)) from error
        # Of what is no JSON, or not of the form that was asked for: pydantic's ValidationError is one too.
        except ValueError as error:
            raise self._bad(f"answers what is no OpenAI response: {_in_short(str(error))}") from error

    def _bad(self, what: str, *, detail: str | None = None) -> BadAnswer:
        return BadAnswer(f"the engine at {self.url} {what}", hint=HINT, detail=detail)

    async def _refused(self, response: httpx.Response) -> OutsideError:
        """The error for an answer that is no 200."""
        text, status = (await response.aread()).decode("utf-8", "replace"), response.status_code
        if self._has_key and status in (401, 403):
            # Not its words: they may repeat a part of the key.
            return OutsideError(f"{self.url} answers {status}", hint="is the key of this arm right?")
        own = _own_words(text)
        words = _in_short(own or text) or "no words"
        if status in ACCESS or (status in ROUTE and own is None):
            hint = "no engine says this; look at what stands before it, and at the address"
            return OutsideError(f"{self.url} answers {status}: {words}", hint=hint, detail=text)
        return self._bad(f"answers {status}: {words}", detail=text)

    async def _collected(self, response: httpx.Response, begin: float) -> ChatAnswer:
        text, finish_reason, tokens = "", "", list[int]()
        pieces, counted, ttft = 0, 0, 0.0
        async for line in _lines(response):
            if not line.startswith(b"data:") or (data := line.removeprefix(b"data:").strip()) == b"[DONE]":
                continue
            chunk = _Chunk.model_validate_json(data)
            if chunk.error is not None:
                said = chunk.error.get("message", chunk.error) if isinstance(chunk.error, dict) else chunk.error
                raise self._bad(f"broke off its answer with: {_in_short(str(said))}")
            counted = (chunk.usage and chunk.usage.completion_tokens) or counted
            for choice in chunk.choices:
                text += choice.words
                pieces += bool(choice.words)
                tokens += choice.token_ids or []
                finish_reason = choice.finish_reason or finish_reason
                if text or finish_reason:
                    ttft = ttft or time.perf_counter() - begin
        # A connection that is closed in good order ends a stream without an error.
        if not finish_reason:
            raise self._bad(f"broke off its answer after {len(tokens) or pieces} tokens")
        return ChatAnswer(
            text=text,
            finish_reason=finish_reason,
            output_tokens=counted or len(tokens) or pieces,
            ttft_seconds=ttft,
            duration_seconds=time.perf_counter() - begin,
            tokens=tuple(tokens),
        )


def wait_seconds(response: httpx.Response | None, attempt: int) -> float:
    """Until the same is asked again: as the answer says, else twice as long as before."""
    told = response.headers if response else {}
    said, thousandths = told.get("retry-after", ""), told.get("retry-after-ms", "")
    wanted = float(thousandths) / 1000 if thousandths.isdecimal() else float(said) if said.isdecimal() else 2.0**attempt
    return min(wanted, LONGEST_WAIT_SECONDS)


class _Delta(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None

    @property
    def words(self) -> str:
        return (self.delta.content if self.delta else self.text) or ""


class _Usage(BaseModel):
    completion_tokens: int | None = None


class _Chunk(BaseModel):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


def _own_words(text: str) -> str | None:
    """What an OpenAI-compatible engine writes in `error`, or its web framework in `detail`; None of other answers."""
    try:
        found = json_of(text)
    except ValueError:
        return None
    body = found.get("error", found) if isinstance(found, dict) else None
    if not isinstance(body, dict):
        return None
    said = body.get("message") or body.get("detail") or body.get("error")
    return None if said is None else str(said)


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    # Not `aiter_lines`, which ends a line where `str.splitlines` does: also at U+2028 within an answer.
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
    yield rest


def _in_short(text: str) -> str:
    """Others' words, on one line and not too many of them."""
    return " ".join(text.split())[:WORDS]
