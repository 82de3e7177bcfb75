"""A process that speaks as much of vLLM's HTTP as a fleet needs, and starts in half a second.

Run as a script: `python stand_in_engine.py --port 8001`. It streams one token at a time, so that a cut
stream can be told from a whole one, and counts what is in flight under vLLM's own metric names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route


class StandInEngine:
    """Answers every chat with the same number of tokens at the same pace."""

    def __init__(self, *, model: str, tokens: int, interval_seconds: float) -> None:
        self.model = model
        self.tokens = tokens
        self.interval_seconds = interval_seconds
        self.running = 0
        self.answered = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/metrics", self.metrics),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("")

    async def metrics(self, request: Request) -> Response:
        label = f'{{model_name="{self.model}",engine="0"}}'
        return PlainTextResponse(
            f"vllm:num_requests_running{label} {self.running}\n"
            f"vllm:num_requests_waiting{label} 0\n"
            f"vllm:request_success_total{label} {self.answered}\n"
        )

    async def chat(self, request: Request) -> Response:
        wish = await request.json()
        if wish["model"] != self.model:
            return JSONResponse({"error": {"message": f"no model {wish['model']}"}}, status_code=404)
        tokens = min(self.tokens, wish.get("max_tokens") or self.tokens)
        if wish.get("stream"):
            return StreamingResponse(self._stream(tokens), media_type="text/event-stream")
        content = "".join([piece async for piece in self._words(tokens)])
        return JSONResponse({"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]})

    async def _stream(self, tokens: int) -> AsyncIterator[str]:
        async for word in self._words(tokens):
            choice = {"index": 0, "delta": {"content": word}}
            yield f"data: {json.dumps({'model': self.model, 'choices': [choice]})}\n\n"
        yield "data: [DONE]\n\n"

    async def _words(self, tokens: int) -> AsyncIterator[str]:
        self.running += 1
        try:
            for index in range(tokens):
                await asyncio.sleep(self.interval_seconds)
                yield f"{index} "
            self.answered += 1
        finally:
            self.running -= 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="stand-in")
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--interval", type=float, default=0.02, help="seconds from token to token")
    parser.add_argument("--fail", help="say this and exit instead of serving")
    wish = parser.parse_args()
    if wish.fail:
        sys.exit(wish.fail)
    print(f"stand-in engine {os.getpid()} on port {wish.port}", flush=True)
    engine = StandInEngine(model=wish.model, tokens=wish.tokens, interval_seconds=wish.interval)
    uvicorn.run(engine.app(), host="127.0.0.1", port=wish.port, log_level="warning", timeout_graceful_shutdown=30)


if __name__ == "__main__":
    main()
