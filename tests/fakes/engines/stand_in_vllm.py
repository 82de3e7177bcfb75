"""A server that starts like vLLM's own, with `--middleware`, and streams like it, in half a second.

Run as the module that the entrypoint starts instead of vLLM's. `--pace` is the seconds from token to token;
prompts ask for the rest: `hang` never answers, `fail` is an error within the stream.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import uvicorn
from prometheus_client import make_asgi_app
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route


def middleware_of(names: Sequence[str]) -> list[Middleware]:
    """What `--middleware` names, each as MODULE.CLASS."""
    found = []
    for name in names:
        module, _, attribute = name.rpartition(".")
        found.append(Middleware(getattr(importlib.import_module(module), attribute)))
    return found


UNTIL = "until "
"""Begins a prompt whose stream ends once the file is there that it names."""


class StandInVllm:
    """Completes every prompt with numbers."""

    def __init__(self, pace: float, *, broken: bool = False, stuck_health: bool = False, forgets: str = "") -> None:
        self.pace = pace
        self.forgets = forgets
        self.broken = broken
        self.stuck_health = stuck_health
        self.prompts: list[str] = []

    def app(self, middleware: list[str]) -> Starlette:
        routes = [
            Route("/health", self.health),
            Route("/prompts", self.told),
            Route("/environment", self.environment),
            Route("/die", self.die),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Mount("/metrics", make_asgi_app()),
        ]
        return Starlette(routes=routes, middleware=middleware_of(middleware))

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("")

    async def told(self, request: Request) -> Response:
        return JSONResponse(self.prompts)

    async def environment(self, request: Request) -> Response:
        return JSONResponse(dict(os.environ))

    async def die(self, request: Request) -> Response:
        asyncio.get_running_loop().call_later(0.1, os._exit, 3)
        return PlainTextResponse("")

    async def chat(self, request: Request) -> Response:
        """As much as a fleet asks before an engine serves."""
        return JSONResponse({"choices": [{"message": {"role": "assistant", "content": "0"}}]})

    async def complete(self, request: Request) -> Response:
        options = await request.json()
        self.prompts.append(options["prompt"])
        if self.broken:
            return JSONResponse({}, status_code=500)
        if options["prompt"] == "hang" or (self.stuck_health and options["prompt"] == "health"):
            await asyncio.sleep(3600)
        if options["prompt"] == "wrong":
            return JSONResponse({"error": {"message": "wrong"}}, status_code=400)
        if options.get("stream"):
            return StreamingResponse(self._stream(options), media_type="text/event-stream")
        await asyncio.sleep(self.pace * options["max_tokens"])
        return JSONResponse({"choices": [{"text": "0 " * options["max_tokens"]}]})

    async def _stream(self, options: dict[str, object]) -> AsyncIterator[str]:
        prompt = str(options["prompt"])
        words = [str(index) for index in range(int(str(options["max_tokens"])))]
        if self.forgets:
            words = ["What?"] if self.forgets in prompt else prompt.split()
        for word in words:
            await asyncio.sleep(self.pace)
            yield f"data: {json.dumps({'choices': [{'text': f'{word} '}]})}\n\n"
        while prompt.startswith(UNTIL) and not Path(prompt.removeprefix(UNTIL)).exists():
            await asyncio.sleep(self.pace)
        if prompt == "fail":
            yield f"data: {json.dumps({'error': {'message': 'failed', 'code': 500}})}\n\n"
        yield "data: [DONE]\n\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--middleware", action="append", default=[])
    parser.add_argument("--pace", type=float, default=0.01)
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--broken", action="store_true", help="answer every prompt with an error")
    parser.add_argument("--stuck-health", action="store_true", help="never answer the prompt `health`")
    parser.add_argument("--forgets", default="", help="a word that it does not understand; else it repeats prompts")
    parser.add_argument("--compiles", help="a kernel to leave in the compile cache")
    parser.add_argument("--fail", help="say this and end instead of serving")
    options, _ = parser.parse_known_args()
    time.sleep(options.load_seconds)
    if options.fail:
        sys.exit(options.fail)
    if options.compiles:
        (Path(os.environ["VLLM_CACHE_ROOT"]) / options.compiles).write_bytes(b"ELF")
    server = StandInVllm(
        options.pace, broken=options.broken, stuck_health=options.stuck_health, forgets=options.forgets
    )
    uvicorn.run(server.app(options.middleware), host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
