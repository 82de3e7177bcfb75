"""A server in the place of vLLM's own, in an engine environment of `vllm_home`: what it answers depends on the weights.

It speaks what a delivery, its users and its gates ask of vLLM. It renders the version's own chat template and has its
own tokenizer; each of its answers is drawn from the weights' digest and the prompt, so that equal weights answer alike
and others otherwise. `EngineContract` says what it has in common with the real one.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from fakes.engines.stand_in_engine import StandInMetrics
from fakes.engines.stand_in_vllm import middleware_of
from prometheus_client import REGISTRY, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from engine_images.adapters.chat_template import Work, rendered

PACE_SECONDS = 0.01
"""From token to token."""
USUAL_TOKENS = 16
LETTERS = tuple(range(ord("a"), ord("z") + 1))


class Model:
    """The files of a version; nonsense, but always the same."""

    def __init__(self, folder: Path) -> None:
        self._template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).digest()

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        """What the chat template makes of a conversation."""
        work = Work(template=self._template, messages=messages, tokens={}, cpu_seconds=0, memory_bytes=0)
        return rendered(work)["text"]

    def tokens(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def answer(self, prompt: str, tokens: int) -> list[tuple[int, str]]:
        """So many tokens, each with its text, which is one letter."""
        drawn = random.Random(self._weights + prompt.encode())
        letters = [chr(drawn.choice(LETTERS)) for _ in range(tokens)]
        return [(self.tokens(letter)[0], letter) for letter in letters]


class ServedModel:
    """The part of vLLM's interface that is asked for."""

    def __init__(self, model: Model, name: str, buckets: Mapping[str, Sequence[float]]) -> None:
        self._model, self._name = model, name
        self._metrics = StandInMetrics(name, registry=REGISTRY, buckets=buckets)

    def app(self, middleware: Sequence[str]) -> Starlette:
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.numbers),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=middleware_of(middleware))

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("")

    async def numbers(self, request: Request) -> Response:
        return Response(generate_latest(REGISTRY), media_type="text/plain; version=0.0.4")

    async def tokenize(self, request: Request) -> Response:
        asked = await request.json()
        tokens = self._model.tokens(self._model.prompt(asked["messages"]) if "messages" in asked else asked["prompt"])
        return JSONResponse({"tokens": tokens, "count": len(tokens)})

    async def complete(self, request: Request) -> Response:
        asked = await request.json()
        return await self._answered(asked, asked["prompt"], Completion(asked, self._name))

    async def chat(self, request: Request) -> Response:
        asked = await request.json()
        return await self._answered(asked, self._model.prompt(asked["messages"]), Chat(asked, self._name))

    async def _answered(self, asked: dict[str, Any], prompt: str, form: Completion) -> Response:
        if asked.get("model", self._name) != self._name:
            message = f"The model `{asked['model']}` does not exist."
            self._metrics.answered(404)
            return JSONResponse({"error": {"message": message, "code": 404}}, status_code=404)
        self._metrics.answered(200)
        pieces = self._generated(self._model.answer(prompt, asked.get("max_tokens") or USUAL_TOKENS))
        if asked.get("stream"):
            return StreamingResponse(form.events(pieces), media_type="text/event-stream")
        return JSONResponse(form.whole([piece async for piece in pieces]))

    async def _generated(self, answer: Sequence[tuple[int, str]]) -> AsyncIterator[tuple[int, str]]:
        """Token by token, counted as vLLM counts."""
        with self._metrics.request() as count:
            for piece in answer:
                await asyncio.sleep(PACE_SECONDS)
                count()
                yield piece


class Completion:
    """How `/v1/completions` says an answer."""

    whole_kind, part_kind = "text_completion", "text_completion"

    def __init__(self, asked: Mapping[str, Any], model: str) -> None:
        self._head = {"id": "cmpl-0", "created": 0, "model": model}
        self._tells_tokens = bool(asked.get("return_token_ids"))

    def whole(self, pieces: Sequence[tuple[int, str]]) -> dict[str, Any]:
        text = "".join(text for _, text in pieces)
        choice = self.said(text) | {"index": 0, "finish_reason": "length"} | self._ids([token for token, _ in pieces])
        usage = {"completion_tokens": len(pieces)}
        return {**self._head, "object": self.whole_kind, "choices": [choice], "usage": usage}

    async def events(self, pieces: AsyncIterator[tuple[int, str]]) -> AsyncIterator[str]:
        """As server-sent events, each with a token; the last of all says why it is the last."""
        for first in self.opening():
            yield self._event(first | {"index": 0, "finish_reason": None})
        before = None
        async for piece in pieces:
            if before is not None:
                yield self._event(self._part(before, None))
            before = piece
        if before is not None:
            yield self._event(self._part(before, "length"))
        yield "data: [DONE]\n\n"

    def said(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def part(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def opening(self) -> Iterator[dict[str, Any]]:
        """What comes before the first token."""
        yield from ()

    def _part(self, piece: tuple[int, str], finish_reason: str | None) -> dict[str, Any]:
        token, text = piece
        return self.part(text) | {"index": 0, "finish_reason": finish_reason} | self._ids([token])

    def _ids(self, tokens: list[int]) -> dict[str, Any]:
        return {"token_ids": tokens} if self._tells_tokens else {}

    def _event(self, choice: dict[str, Any]) -> str:
        return f"data: {json.dumps({**self._head, 'object': self.part_kind, 'choices': [choice]})}\n\n"


class Chat(Completion):
    """How `/v1/chat/completions` says it."""

    whole_kind, part_kind = "chat.completion", "chat.completion.chunk"

    def said(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def part(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}}

    def opening(self) -> Iterator[dict[str, Any]]:
        yield {"delta": {"role": "assistant", "content": ""}}


def main() -> None:
    """Started as vLLM's own server is; arguments that change nothing here are taken as they are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--middleware", action="append", default=[])
    parser.add_argument("--custom-histogram-buckets", type=json.loads, default={})
    asked, _ = parser.parse_known_args()
    served = ServedModel(Model(asked.model), asked.served_model_name, asked.custom_histogram_buckets)
    uvicorn.run(served.app(asked.middleware), host=asked.host, port=asked.port, log_level="warning")


if __name__ == "__main__":
    main()
