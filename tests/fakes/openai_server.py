"""An OpenAI-compatible server on the loopback: a judge with faults to order, and an engine that knows likelihoods."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fakes.judge import FakeJudge

Fault = Callable[[Request, dict[str, object]], Response | None]


@dataclass
class OpenAIServer:
    """What the server is to do, and what it was asked."""

    url: str
    faults: list[Fault | None] = field(default_factory=list)
    """For the first requests, one each; None answers well."""
    bodies: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    judge: FakeJudge = field(default_factory=FakeJudge)
    seconds: float = 0.0
    """An answer takes."""
    logprobs: dict[int, float] = field(default_factory=dict)
    """By token, of a prompt; a token that is missing here has none."""
    under_way: int = 0
    most_under_way: int = 0

    async def chat(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        fault = self.faults.pop(0) if self.faults else None
        if fault and (response := fault(request, body)):
            return response
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(self.seconds)
        self.under_way -= 1
        return completion(self.judge.reply(body["messages"][-1]["content"]))

    async def tokenize(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        # One token a letter; a template puts 1 before and 2 behind.
        if "messages" in body:
            tokens = [1, *(ord(letter) for letter in body["messages"][0]["content"]), 2]
        else:
            tokens = [ord(letter) for letter in body["prompt"]]
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": 4096})

    async def complete(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        if len(body["prompt"]) > 100:
            return JSONResponse({"error": {"message": f"too long: {body['prompt']}"}}, 400)
        entries = [
            {str(token): {"logprob": self.logprobs[token], "rank": 1, "decoded_token": chr(token)}}
            if token in self.logprobs
            else {}
            for token in body["prompt"]
        ]
        choice = {"index": 0, "text": "!", "finish_reason": "length", "prompt_logprobs": [None, *entries[1:]]}
        return JSONResponse({"id": "c", "object": "text_completion", "choices": [choice]})


def completion(text: str | None, *, finish_reason: str = "stop", refusal: str | None = None) -> Response:
    """A chat completion as the API words it."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return JSONResponse({"id": "c", "object": "chat.completion", "created": 0, "model": "judge", "choices": [choice]})


@contextmanager
def openai_server() -> Iterator[OpenAIServer]:
    """Serve on a free loopback port."""
    listener = socket.create_server(("127.0.0.1", 0))
    state = OpenAIServer(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    routes = [
        Route("/v1/chat/completions", state.chat, methods=["POST"]),
        Route("/v1/completions", state.complete, methods=["POST"]),
        Route("/tokenize", state.tokenize, methods=["POST"]),
    ]
    config = uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
