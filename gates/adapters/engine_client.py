"""OpenAI's client for an engine: asked directly and once."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from tidegate.core.metadata_servers import async_request_hook

# Imported by those who ask: it takes a second, and most steps of a delivery ask no engine.
if TYPE_CHECKING:
    from openai import AsyncOpenAI


def engine_client(url: str, *, timeout_seconds: float) -> AsyncOpenAI:
    """A client of the engine at `url`, which may stay silent for `timeout_seconds`."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    return AsyncOpenAI(
        base_url=url,
        api_key="none",
        # An answer that came only the second time would hide what users see.
        max_retries=0,
        timeout=timeout_seconds,
        # Engines are asked directly, whatever proxy the environment has for the world outside.
        http_client=DefaultAsyncHttpxClient(
            trust_env=False, verify=_trust(url), event_hooks={"request": [async_request_hook()]}
        ),
    )


def _trust(url: str) -> ssl.SSLContext | bool:
    """Whose certificates are believed: those of the library; without TLS nobody's.

    To read them takes a tenth of a second of CPU time, and an engine is mostly asked without.
    """
    return True if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
