"""An OpenAI-compatible endpoint that answers by a function of the prompt, streaming, with a key or without."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fakes.services.asgi import routes_served
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class EndpointServer:
    """How it answers, and what it was asked."""

    answer: Callable[[str], str | None]
    """None is an error 500."""
    seconds: float = 0.0
    """Until the first token."""
    key: str = ""
    """Without it nobody is answered; empty for an endpoint that asks for none."""
    models: tuple[str, ...] = ("m",)
    busy: int = 0
    """So many requests are answered 429 first."""
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def listing(self, request: Request) -> Response:
        return self._refusal(request) or JSONResponse(
            {"object": "list", "data": [{"id": name} for name in self.models]}
        )

    async def complete(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        if self.busy:
            self.busy -= 1
            return JSONResponse({"error": {"message": "slow down"}}, 429, {"retry-after": "0"})
        body = json.loads(await request.body())
        self.asked.append(body)
        chat = "messages" in body
        text = self.answer(body["messages"][-1]["content"] if chat else body["prompt"])
        if text is None:
            return JSONResponse({"error": {"message": "no memory is left"}}, 500)
        return StreamingResponse(self._stream(text, chat=chat), media_type="text/event-stream")

    async def _stream(self, text: str, *, chat: bool) -> AsyncIterator[str]:
        await asyncio.sleep(self.seconds)
        words = text.split(" ")
        for number, word in enumerate(words):
            said = word if number == 0 else f" {word}"
            yield _event({"choices": [{"index": 0, "delta": {"content": said}} if chat else {"text": said}]})
        last: dict[str, Any] = {"index": 0, "finish_reason": "stop", **({"delta": {}} if chat else {"text": ""})}
        yield _event({"choices": [last]})
        yield _event({"choices": [], "usage": {"completion_tokens": len(words)}})
        yield "data: [DONE]\n\n"

    def _refusal(self, request: Request) -> Response | None:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "Incorrect API key provided: sk-wr***ng"}}, 401)
        return None


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"


@contextmanager
def endpoint_server(answer: Callable[[str], str | None] = str, **settings: Any) -> Iterator[EndpointServer]:
    """Serve on a free loopback port; without more it says what it was asked."""
    server = EndpointServer(answer, **settings)
    routes = [
        Route("/v1/models", server.listing),
        Route("/v1/chat/completions", server.complete, methods=["POST"]),
        Route("/v1/completions", server.complete, methods=["POST"]),
    ]
    with routes_served(routes) as server.url:
        yield server
