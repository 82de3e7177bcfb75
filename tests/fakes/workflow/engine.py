"""The engines of all regions behind one address: a stable and a canary that read as the registered files say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fakes.services.asgi import routes_served
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine_images.adapters.model_version import FileTokenizer

RIGHT, WRONG = ("It", " is", " four"), ("It", " is", " seven")


@dataclass
class Engines:
    """Answers "four" to everything, unless the canary is bad."""

    url: str
    folder: Path
    """A version's files; how its engine reads conversations."""
    bad_canary: bool = False

    async def chat(self, request: Request) -> Response:
        words = WRONG if self.bad_canary and request.path_params["arm"] == "canary" else RIGHT

        def events() -> Iterator[str]:
            for number, word in enumerate(words):
                choice = {"index": 0, "delta": {"content": word}, "finish_reason": None, "token_ids": [number]}
                yield _event({"choices": [choice]})
            yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def tokenize(self, request: Request) -> Response:
        messages = (await request.json())["messages"]
        return JSONResponse({"tokens": FileTokenizer().encode(self.folder, messages)})


@contextmanager
def engines(folder: Path) -> Iterator[Engines]:
    """Serve on a free loopback port, as `/stable` and `/canary`."""
    served = Engines(url="", folder=folder)
    routes = [
        Route("/{arm}/v1/chat/completions", served.chat, methods=["POST"]),
        Route("/{arm}/tokenize", served.tokenize, methods=["POST"]),
    ]
    with routes_served(routes) as served.url:
        yield served


def _event(body: dict[str, object]) -> str:
    return f"data: {json.dumps({'id': 'c', 'object': 'chat.completion.chunk', 'created': 0, 'model': 'm'} | body)}\n\n"
