"""Any OpenAI-compatible endpoint, with a key or without, to be compared with another."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel

from gates.adapters.engine_client import collect, engine_client, engine_errors, refused
from gates.comparison.model import ApiForm, Endpoint
from gates.model import EngineReply
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.text import is_loopback, parsed, redacted

RETRIES = 5
"""Of a request that met 429: anyone who lets so few through a minute says nothing of the model."""
LONGEST_WAIT_SECONDS = 30.0


class OpenAIEndpoint:
    """A `CompletionSource`; use it as a context, it holds connections."""

    def __init__(self, at: Endpoint, *, key: str = "", timeout_seconds: float = 60) -> None:
        """`key` goes into the header `Authorization` and nowhere else; silence may last `timeout_seconds`."""
        self._at, self._has_key = at, bool(key)
        self._client = engine_client(at.url, key=key, timeout_seconds=timeout_seconds, direct=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def ask(self, prompt: str, *, max_tokens: int) -> EngineReply:
        """As `CompletionSource`; an answer of 429 is asked for again, later."""
        url, chat = self._at.url, self._at.api is ApiForm.CHAT
        asked: dict[str, object] = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        body = {
            "model": self._at.model,
            **asked,
            "max_tokens": max_tokens,
            # So that two answers of one version can be compared.
            "temperature": 0,
            "seed": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for attempt in range(RETRIES + 1):
            begin = time.perf_counter()
            with engine_errors(url):
                path = f"{url}/{'chat/completions' if chat else 'completions'}"
                async with self._client.stream("POST", path, json=body) as response:
                    if response.status_code == httpx.codes.TOO_MANY_REQUESTS and attempt < RETRIES:
                        wait = _retry_after(response, attempt)
                    elif self._has_key and response.status_code in (401, 403):
                        # Not its words: they may repeat a part of the key.
                        hint = "is the key of this arm right?"
                        raise OutsideError(f"{url} answers {response.status_code}", hint=hint)
                    elif response.status_code != httpx.codes.OK:
                        raise await refused(url, response)
                    else:
                        found = await collect(url, response, begin)
                        after_first = found.duration_seconds - found.ttft_seconds
                        return EngineReply(
                            text=found.text,
                            finish_reason=found.finish_reason,
                            output_tokens=found.count,
                            ttft_seconds=found.ttft_seconds,
                            itl_seconds=after_first / (found.count - 1) if found.count > 1 else None,
                            duration_seconds=found.duration_seconds,
                        )
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")


async def models_of(url: str, key: str, *, timeout_seconds: float = 30) -> tuple[str, ...]:
    """The names of the models that the endpoint at `url` says it serves.

    Raises:
        OutsideError: it does not answer, or not as such endpoints do.
    """
    async with engine_client(url, key=key, timeout_seconds=timeout_seconds, direct=False) as client:
        with engine_errors(url):
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
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UsageError(f"{option}: the key would go to {url} without TLS", hint="give an https:// address")


def _retry_after(response: httpx.Response, attempt: int) -> float:
    said = response.headers.get("retry-after", "")
    return min(float(said) if said.isdecimal() else 2.0**attempt, LONGEST_WAIT_SECONDS)
