"""An OpenAI-compatible server with vLLM's flags and metric names, in an engine image that holds no vLLM.

The entrypoint of tidegate starts it as vLLM, or it is the entrypoint itself, as in `vllm/vllm-openai`. Prompts longer
than `--max-num-batched-tokens` are read in so many steps, each as long as the first token of one that is not.
How it behaves besides stands in `standin.json` among the model's files:

    {"ttft": seconds, "itl": seconds, "tokens": count, "wrong": share, "errors": share, "errors_after": requests,
     "load": seconds, "fail": "last words", "die_after": seconds, "hang_after": seconds}

`metrics.json` next to this file is the project's own inventory of vLLM's metrics, as `image.py` wrote it.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import json
import math
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jinja2
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

MODEL = Path("model")
"""The entrypoint of tidegate starts vLLM in a folder where this leads to the model."""
MANIFEST = Path("/engine/manifest.json")
BORN = time.monotonic()
RIGHT, WRONG = ("It", " is", " four", "."), ("It", " is", " seven", "!")
SPREAD = 0.3
"""Of the logarithm of every wait: real engines do not answer like clocks."""


def behaviour(model: Path) -> dict[str, Any]:
    """What the model version says of itself."""
    said = model / "standin.json"
    return {"ttft": 0.03, "itl": 0.003, "tokens": 8, "load": 0.3} | (
        json.loads(said.read_text()) if said.exists() else {}
    )


def own_words(prompt: str) -> list[str]:
    """Words that no other prompt gets."""
    drawn = hashlib.shake_256(prompt.encode()).digest(16 * 6)
    return [" " + "".join(chr(97 + byte % 26) for byte in drawn[at : at + 6]) for at in range(0, len(drawn), 6)]


class Counts:
    """vLLM's metrics, as far as rules and gates read them."""

    def __init__(self, name: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        values = {"model_name": name, "engine": "0", "finished_reason": "stop"}
        kinds = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
        self._made: dict[str, Any] = {}
        for metric in json.loads(Path(__file__).with_name("metrics.json").read_text()):
            edges = {"buckets": metric["edges"]} if metric["edges"] else {}
            text = metric["name"].removesuffix("_total")
            made = kinds[metric["kind"]](text, "of a stand-in", metric["labels"], registry=self.registry, **edges)
            known = all(label in values for label in metric["labels"])
            self._made[metric["name"]] = (
                made.labels(**{label: values[label] for label in metric["labels"]}) if known else made
            )

    def __getitem__(self, name: str) -> Any:
        return self._made[name]

    def text(self) -> bytes:
        return generate_latest(self.registry)


class StandIn:
    """Answers every prompt with the same words, as fast and as well as its model version says."""

    def __init__(self, name: str, model: Path, batched: int | None) -> None:
        self.name = name
        self.ways = behaviour(model)
        self.batched = batched
        self.streamed = 0
        self.counts = Counts(name)
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        template = (model / "chat_template.jinja").read_text(encoding="utf-8")
        self.template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(template)
        # Without an image of tidegate's own the folder is named after the version.
        version = json.loads(MANIFEST.read_text())["model"]["version"] if MANIFEST.exists() else model.name
        self.headers = {"x-tidegate-version": version, "x-tidegate-pod": os.environ.get("HOSTNAME", "")}

    def app(self, middleware: list[str]) -> Starlette:
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/version", self.version),
            Route("/v1/models", self.models),
            Route("/v1/chat/completions", self.complete, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
        ]
        return Starlette(routes=routes, middleware=[Middleware(_named(name)) for name in middleware])

    async def health(self, _: Request) -> Response:
        return PlainTextResponse("")

    async def metrics(self, _: Request) -> Response:
        return Response(self.counts.text(), media_type="text/plain; version=0.0.4")

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": "0.32.0"})

    async def models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self.name, "object": "model", "max_model_len": 1024}]})

    async def tokenize(self, request: Request) -> Response:
        tokens = self._tokens((await request.json())["messages"])
        return JSONResponse({"count": len(tokens), "max_model_len": 1024, "tokens": tokens})

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        chat = "messages" in body
        # Only people stream: an engine whose warm-up or health fails would never be ready.
        failed = bool(body.get("stream")) and self._fails()
        handler = "/v1/chat/completions" if chat else "/v1/completions"
        answered = self.counts["http_requests_total"].labels(
            handler=handler, method="POST", status="5xx" if failed else "2xx"
        )
        if failed:
            answered.inc()
            return JSONResponse({"error": {"message": "the stand-in fails on purpose"}}, 500, headers=self.headers)
        words, reads = self._words(body), self._reads(body)
        if body.get("stream"):
            events = self._events(words, reads, answered, chat=chat)
            return StreamingResponse(events, media_type="text/event-stream", headers=self.headers)
        text = "".join([word async for _, word in self._timed(words, reads)])
        answered.inc()
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        choice = {"index": 0, "finish_reason": "stop", **said}
        return JSONResponse(_answer(choices=[choice], usage=_usage(words)), headers=self.headers)

    def _tokens(self, messages: list[dict[str, str]]) -> list[int]:
        text = self.template.render(messages=messages, add_generation_prompt=True)
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _fails(self) -> bool:
        self.streamed += 1
        return self.streamed > self.ways.get("errors_after", 0) and random.random() < self.ways.get("errors", 0)

    def _words(self, body: dict[str, Any]) -> list[str]:
        """The same prompt always gets the same words."""
        prompt = body["messages"][-1]["content"] if "messages" in body else str(body.get("prompt"))
        good = hashlib.sha256(prompt.encode()).digest()[0] / 256 >= self.ways.get("wrong", 0)
        good = good and not (self.ways.get("forgets") and self.ways["forgets"] in prompt)
        own = own_words(prompt) if good and self.ways.get("own_words") else []
        words = [*(RIGHT if good else WRONG), *own, *(f" {number}" for number in range(4, self.ways["tokens"]))]
        return words[: body.get("max_tokens") or body.get("max_completion_tokens") or len(words)]

    def _reads(self, body: dict[str, Any]) -> int:
        """In how many steps it reads the prompt."""
        if self.batched is None:
            return 1
        said = body["messages"] if "messages" in body else [{"role": "user", "content": str(body.get("prompt"))}]
        return math.ceil(len(self._tokens(said)) / self.batched)

    async def _timed(self, words: list[str], reads: int) -> AsyncIterator[tuple[int, str]]:
        counts, begun = self.counts, time.monotonic()
        counts["vllm:num_requests_running"].inc()
        counts["vllm:prompt_tokens_total"].inc(8)
        counts["vllm:request_queue_time_seconds"].observe(0.001)
        last, first = begun, None
        try:
            for number, word in enumerate(words):
                for _ in range(1 if number else reads):
                    await self._wait(number)
                now = time.monotonic()
                name = "inter_token_latency_seconds" if number else "time_to_first_token_seconds"
                counts[f"vllm:{name}"].observe(now - last)
                counts["vllm:generation_tokens_total"].inc()
                last, first = now, first or now
                yield number, word
            counts["vllm:e2e_request_latency_seconds"].observe(last - begun)
            counts["vllm:request_success_total"].inc()
            if first is not None and len(words) > 1:
                counts["vllm:request_time_per_output_token_seconds"].observe((last - first) / (len(words) - 1))
        finally:
            counts["vllm:num_requests_running"].dec()

    async def _wait(self, number: int) -> None:
        if self.ways.get("hang_after") and time.monotonic() - BORN > self.ways["hang_after"]:
            await asyncio.sleep(3600)
        await asyncio.sleep(random.lognormvariate(0, SPREAD) * self.ways["itl" if number else "ttft"])

    async def _events(self, words: list[str], reads: int, answered: Counter, *, chat: bool) -> AsyncIterator[str]:
        """vLLM counts an answer once it has ended."""
        try:
            async for event in self._spoken(words, reads, chat=chat):
                yield event
        finally:
            answered.inc()

    async def _spoken(self, words: list[str], reads: int, *, chat: bool) -> AsyncIterator[str]:
        async for number, word in self._timed(words, reads):
            role = {} if number else {"role": "assistant"}
            part = {"delta": {"content": word, **role}} if chat else {"text": word}
            yield _event([{"index": 0, "finish_reason": None, "token_ids": [number], **part}])
        yield _event([{"index": 0, "finish_reason": "stop", **({"delta": {}} if chat else {"text": ""})}])
        yield _event([], usage=_usage(words))
        yield "data: [DONE]\n\n"


def _named(dotted: str) -> Any:
    module, _, attribute = dotted.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _answer(**parts: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", **parts}


def _event(choices: list[dict[str, Any]], **parts: Any) -> str:
    return f"data: {json.dumps(_answer(choices=choices, **parts) | {'object': 'chat.completion.chunk'})}\n\n"


def _usage(words: list[str]) -> dict[str, int]:
    return {"prompt_tokens": 8, "completion_tokens": len(words), "total_tokens": 8 + len(words)}


async def _die(after: float) -> None:
    await asyncio.sleep(after)
    os._exit(3)


async def serve(server: uvicorn.Server, ways: dict[str, Any]) -> None:
    """Until it is told to end, or until its time has come."""
    dying = asyncio.create_task(_die(ways["die_after"])) if ways.get("die_after") else None
    await server.serve()
    if dying:
        dying.cancel()


def main() -> None:
    """Start as vLLM's server is started."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", default="support-llm")
    parser.add_argument("--middleware", action="append", default=[])
    options, _ = parser.parse_known_args()
    ways = behaviour(options.model)
    time.sleep(ways["load"])
    if ways.get("fail"):
        sys.exit(ways["fail"])
    app = StandIn(options.served_model_name, options.model, options.max_num_batched_tokens).app(options.middleware)
    idle = int(os.environ.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "5"))
    how = uvicorn.Config(app, options.host, options.port, log_level="warning", timeout_keep_alive=idle)
    asyncio.run(serve(uvicorn.Server(how), ways))


if __name__ == "__main__":
    main()
