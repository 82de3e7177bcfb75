"""Asks any OpenAI-compatible endpoint, with a key or without, by HTTP alone: comparing two needs no other package."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel

from gates.adapters.engine_errors import broke_off, in_short, told_by_status
from gates.comparison.model import ApiForm, Endpoint
from gates.errors import BadAnswer
from gates.model import EngineReply
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.text import json_of, parsed, redacted

RETRIES = 5
"""Of a request that met 429: anyone who lets so few through a minute says nothing of the model."""
LONGEST_WAIT_SECONDS = 30.0
NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class _Delta(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None

    @property
    def words(self) -> str:
        return (self.delta.content if self.delta else self.text) or ""


class _Usage(BaseModel):
    completion_tokens: int | None = None


class _Chunk(BaseModel):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class OpenAIEndpoint:
    """A `CompletionSource`; use it as a context, it holds connections."""

    def __init__(self, at: Endpoint, *, key: str = "", timeout_seconds: float = 60) -> None:
        """`key` goes into the header `Authorization` and nowhere else; silence may last `timeout_seconds`."""
        self._at, self._has_key = at, bool(key)
        self._client = _client(at.url, key, timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def ask(self, prompt: str, *, max_tokens: int) -> EngineReply:
        """As `CompletionSource`; an answer of 429 is asked for again, later."""
        for attempt in range(RETRIES + 1):
            begin = time.perf_counter()
            with _told(self._at.url):
                async with self._client.stream("POST", self._path, json=self._body(prompt, max_tokens)) as response:
                    if response.status_code == httpx.codes.TOO_MANY_REQUESTS and attempt < RETRIES:
                        wait = _retry_after(response, attempt)
                    elif response.status_code != httpx.codes.OK:
                        raise await self._refused(response)
                    else:
                        return await self._collect(response, begin)
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    @property
    def _path(self) -> str:
        return f"{self._at.url}/{'chat/completions' if self._at.api is ApiForm.CHAT else 'completions'}"

    def _body(self, prompt: str, max_tokens: int) -> dict[str, object]:
        chat = self._at.api is ApiForm.CHAT
        asked: dict[str, object] = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        return {
            "model": self._at.model,
            **asked,
            "max_tokens": max_tokens,
            # So that two answers of one version can be compared.
            "temperature": 0,
            "seed": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def _collect(self, response: httpx.Response, begin: float) -> EngineReply:
        text, finish_reason = "", ""
        pieces, tokens = 0, 0
        ttft: float | None = None
        async for chunk in _chunks(response):
            if chunk.error is not None:
                raise BadAnswer(
                    f"the engine at {self._at.url} broke off its answer with: {_message(chunk.error)}",
                    hint="its log says more",
                )
            tokens = (chunk.usage and chunk.usage.completion_tokens) or tokens
            for choice in chunk.choices:
                text += choice.words
                pieces += bool(choice.words)
                finish_reason = choice.finish_reason or finish_reason
                if ttft is None and (text or finish_reason):
                    ttft = time.perf_counter() - begin
        # A connection that is closed in good order ends a stream without an error.
        if not finish_reason or ttft is None:
            raise broke_off(self._at.url, pieces)
        duration, count = time.perf_counter() - begin, tokens or pieces
        return EngineReply(
            text=text,
            finish_reason=finish_reason,
            output_tokens=count,
            ttft_seconds=ttft,
            itl_seconds=(duration - ttft) / (count - 1) if count > 1 else None,
            duration_seconds=duration,
        )

    async def _refused(self, response: httpx.Response) -> OutsideError:
        text = (await response.aread()).decode("utf-8", "replace")
        if self._has_key and response.status_code in (401, 403):
            # Not its words: they may repeat a part of the key.
            return OutsideError(f"{self._at.url} answers {response.status_code}", hint="is the key of this arm right?")
        return told_by_status(self._at.url, response.status_code, text, _json(text))


async def models_of(url: str, key: str, *, timeout_seconds: float = 30) -> tuple[str, ...]:
    """The names of the models that the endpoint at `url` says it serves.

    Raises:
        OutsideError: it does not answer, or not as such endpoints do.
    """
    async with _client(url, key, timeout_seconds) as client:
        with _told(url):
            response = await client.get(f"{url}/models")
            if response.status_code != httpx.codes.OK:
                hint = "name the model with --stable-model and --canary-model; see the address and the key"
                raise OutsideError(f"{url}/models answers {response.status_code}", hint=hint)
            return tuple(model.id for model in _Models.model_validate_json(response.content).data)


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


def base_url(text: str, option: str) -> str:
    """The address that an option names, with `/v1` where it has no path.

    Raises:
        UsageError: it is none, or holds a name and password or a query.
    """
    parts = parsed(text)
    well_formed = parts and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    if not (parts and well_formed) or parts.query or parts.fragment or "@" in parts.netloc:
        expected = "an address such as http://localhost:8000, without a name, password or query"
        found = repr(redacted(text)) if "://" in text else "no address"
        raise UsageError(f"{option}: found {found}; expected {expected}", hint="a key has an option of its own")
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path or '/v1'}"


def refuse_open_key(url: str, option: str) -> None:
    """Raises UsageError when a key would go over the network as it is."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not _is_here(parts.hostname or ""):
        raise UsageError(f"{option}: the key would go to {url} without TLS", hint="give an https:// address")


def _client(url: str, key: str, timeout_seconds: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx.Timeout(timeout_seconds, connect=10),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        # What this machine serves is asked directly, whatever proxy there is for the world outside.
        trust_env=not _is_here(urlsplit(url).hostname or ""),
    )


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _chunks(response: httpx.Response) -> AsyncIterator[_Chunk]:
    async for line in _lines(response):
        if line.startswith(b"data:") and (data := line.removeprefix(b"data:").strip()) != b"[DONE]":
            yield _Chunk.model_validate_json(data)


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    # Not `aiter_lines`, which ends a line where `str.splitlines` does: also at U+2028 within an answer.
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
    yield rest


@contextmanager
def _told(url: str) -> Iterator[None]:
    try:
        yield
    except NOT_REACHED as error:
        reason = in_short(str(error)) or type(error).__name__
        raise OutsideError(
            f"the engine at {url} does not answer: {reason}", hint="check that the address leads to it"
        ) from error
    except httpx.HTTPError as error:
        what = "took too long to answer" if isinstance(error, httpx.TimeoutException) else "broke off its answer"
        raise BadAnswer(f"the engine at {url} {what}", hint="its log says more", detail=str(error)) from error
    # Of what is no JSON, or not of the form that was asked for: pydantic's ValidationError is one too.
    except ValueError as error:
        raise BadAnswer(
            f"the engine at {url} answers what is no OpenAI response: {in_short(str(error))}", hint="its log says more"
        ) from error


def _retry_after(response: httpx.Response, attempt: int) -> float:
    said = response.headers.get("retry-after", "")
    return min(float(said) if said.isdecimal() else 2.0**attempt, LONGEST_WAIT_SECONDS)


def _json(text: str) -> object:
    try:
        found = json_of(text)
    except ValueError:
        return None
    return found.get("error", found) if isinstance(found, dict) else None


def _message(error: object) -> str:
    return in_short(str(error.get("message", error) if isinstance(error, dict) else error))
