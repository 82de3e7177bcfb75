"""A process that speaks as much of vLLM's HTTP as a fleet needs, and starts in a second.

Run as a script: `python stand_in_engine.py --port 8001`. It streams one token at a time, so that a cut
stream can be told from a whole one, and counts what is in flight under vLLM's own metric names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from stand_in_metrics import StandInMetrics
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route


class StandInEngine:
    """Answers every chat with the same number of tokens at the same pace; a share of streams with an error."""

    def __init__(self, *, model: str, tokens: int, interval_seconds: float, error_share: float) -> None:
        self.model = model
        self.tokens = tokens
        self.interval_seconds = interval_seconds
        self.error_share = error_share
        self.metrics = StandInMetrics(model)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/metrics", self.numbers),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ]
        )

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("")

    async def numbers(self, request: Request) -> Response:
        return PlainTextResponse(self.metrics.text())

    async def chat(self, request: Request) -> Response:
        answer = await self._answer(await request.json())
        self.metrics.answered(answer.status_code)
        return answer

    async def _answer(self, wish: dict[str, Any]) -> Response:
        if wish["model"] != self.model:
            return JSONResponse({"error": {"message": f"no model {wish['model']}"}}, status_code=404)
        # Only users stream: an engine whose warm-up fails would never serve.
        if wish.get("stream") and random.random() < self.error_share:
            return JSONResponse({"error": {"message": "the stand-in fails on purpose"}}, status_code=500)
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
        begun, first = self.metrics.asked(), 0.0
        self.metrics.running.inc()
        try:
            for index in range(tokens):
                asked = time.monotonic()
                await asyncio.sleep(self.interval_seconds)
                self._token(time.monotonic() - asked, first=not index)
                first = first or time.monotonic() - begun
                yield f"{index} "
            self.metrics.finish(begun, first, tokens)
        finally:
            self.metrics.running.dec()

    def _token(self, seconds: float, *, first: bool) -> None:
        (self.metrics.ttft if first else self.metrics.itl).observe(seconds)
        self.metrics.generation_tokens.inc()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="support-llm")
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--interval", type=float, default=0.02, help="seconds from token to token")
    parser.add_argument("--error-share", type=float, default=0.0, help="of streamed chats, answered 500")
    parser.add_argument("--fail", help="say this and exit instead of serving")
    wish = parser.parse_args()
    if wish.fail:
        sys.exit(wish.fail)
    print(f"stand-in engine {os.getpid()} on port {wish.port}", flush=True)
    engine = StandInEngine(
        model=wish.model, tokens=wish.tokens, interval_seconds=wish.interval, error_share=wish.error_share
    )
    uvicorn.run(engine.app(), host="127.0.0.1", port=wish.port, log_level="warning", timeout_graceful_shutdown=30)


if __name__ == "__main__":
    main()
