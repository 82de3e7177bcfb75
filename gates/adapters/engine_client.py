"""Asks engines, and any other OpenAI-compatible endpoint, by HTTP alone: a fault of an engine is told from one of the
way to it.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel

from gates.errors import BadAnswer
from tidegate.core.errors import OutsideError
from tidegate.core.metadata_servers import request_hook
from tidegate.core.model import Value
from tidegate.core.text import is_loopback, json_of

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


def engine_client(url: str, *, timeout_seconds: float, key: str = "", direct: bool = True) -> httpx.AsyncClient:
    """A client of what answers at `url`, which may stay silent for `timeout_seconds`.

    `key` goes into the header `Authorization` and nowhere else. What is asked `direct`, as engines and this machine
    are, is asked past the proxy that the environment has for the world outside.
    """
    parts = urlsplit(url)
    return httpx.AsyncClient(
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx.Timeout(timeout_seconds, connect=min(timeout_seconds, 10)),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=not direct and not is_loopback(parts.hostname or ""),
        # To read the certificates that are believed takes a tenth of a second; without TLS nobody's are.
        verify=True if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        event_hooks={"request": [request_hook()]},
    )


@contextmanager
def engine_errors(url: str) -> Iterator[None]:
    """Name what went wrong with the engine at `url`.

    Raises:
        BadAnswer: it was reached and did not answer as an engine does.
        OutsideError: it was not reached, or whatever stands before it let nobody through.
    """
    try:
        yield
    except NOT_REACHED as error:
        reason = _in_short(str(error)) or type(error).__name__
        raise OutsideError(
            f"the engine at {url} does not answer: {reason}", hint="check that the address leads to it"
        ) from error
    except httpx.HTTPError as error:
        what = "took too long to answer" if isinstance(error, httpx.TimeoutException) else "broke off its answer"
        raise BadAnswer(f"the engine at {url} {what}", hint=HINT, detail=str(error)) from error
    # Of what is no JSON, or not of the form that was asked for: pydantic's ValidationError is one too.
    except ValueError as error:
        what = f"answers what is no OpenAI response: {_in_short(str(error))}"
        raise BadAnswer(f"the engine at {url} {what}", hint=HINT) from error


async def post(client: httpx.AsyncClient, url: str, path: str, body: object) -> object:
    """The JSON that the engine at `url` answers; raises as `engine_errors`."""
    with engine_errors(url):
        response = await client.post(f"{url}{path}", json=body)
        if response.status_code != httpx.codes.OK:
            raise await refused(url, response)
        return json_of(response.content)


async def refused(url: str, response: httpx.Response) -> OutsideError:
    """The error for an answer that is no 200."""
    text, status = (await response.aread()).decode("utf-8", "replace"), response.status_code
    own = _own_words(text)
    words = _in_short(own or text) or "no words"
    if status in ACCESS or (status in ROUTE and own is None):
        hint = "no engine says this; look at what stands before it, and at the address"
        return OutsideError(f"{url} answers {status}: {words}", hint=hint, detail=text)
    return BadAnswer(f"the engine at {url} answers {status}: {words}", hint=HINT, detail=text)


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


class Streamed(Value):
    """An answer that was streamed to its end."""

    text: str
    tokens: tuple[int, ...]
    """Their ids, where the engine was asked for them, as vLLM's addition to the format is."""
    count: int
    """Of tokens: as the engine counted, else those that came, else the pieces of text."""
    finish_reason: str
    ttft_seconds: float
    duration_seconds: float


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


async def collect(url: str, response: httpx.Response, begin: float) -> Streamed:
    """The answer of the engine at `url`, timed from `begin`; to be called within `engine_errors`.

    Raises:
        BadAnswer: it broke off.
    """
    text, finish_reason, tokens = "", "", list[int]()
    pieces, counted, ttft = 0, 0, 0.0
    async for line in _lines(response):
        if not line.startswith(b"data:") or (data := line.removeprefix(b"data:").strip()) == b"[DONE]":
            continue
        chunk = _Chunk.model_validate_json(data)
        if chunk.error is not None:
            said = chunk.error.get("message", chunk.error) if isinstance(chunk.error, dict) else chunk.error
            what = f"broke off its answer with: {_in_short(str(said))}"
            raise BadAnswer(f"the engine at {url} {what}", hint=HINT)
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
        what = f"broke off its answer after {len(tokens) or pieces} tokens"
        raise BadAnswer(f"the engine at {url} {what}", hint=HINT)
    return Streamed(
        text=text,
        tokens=tuple(tokens),
        count=counted or len(tokens) or pieces,
        finish_reason=finish_reason,
        ttft_seconds=ttft,
        duration_seconds=time.perf_counter() - begin,
    )


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
