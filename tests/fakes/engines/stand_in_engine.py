"""A process that speaks as much of vLLM's HTTP as a fleet needs, and starts in a second.

Run as a script: `python stand_in_engine.py --port 8001`. It streams one token at a time, so that a cut
stream can be told from a whole one, and counts the metrics of vLLM that rules and gates read, under its names and on
its edges.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from slo import metrics as vllm
from slo.metrics import TARGET, PrometheusMetric

ENGINE = "0"


class StandInMetrics:
    """Counters, gauges and histograms of one engine."""

    def __init__(
        self,
        model: str,
        registry: CollectorRegistry | None = None,
        buckets: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """A `registry` that is given has the process' own numbers; `buckets` are edges by family."""
        self._buckets = buckets or {}
        self._registry = registry or CollectorRegistry()
        self._values = {"model_name": model, "engine": ENGINE, "finished_reason": "stop"}
        if registry is None:
            ProcessCollector(registry=self._registry)
        self.ttft = self._histogram(vllm.TTFT)
        self.itl = self._histogram(vllm.ITL)
        self.time_per_token = self._histogram(vllm.TIME_PER_OUTPUT_TOKEN)
        self.e2e = self._histogram(vllm.E2E)
        self.queue_time = self._histogram(vllm.QUEUE_TIME)
        self.running = self._gauge(vllm.RUNNING)
        self.waiting = self._gauge(vllm.WAITING)
        self.cache = self._gauge(vllm.KV_CACHE_USAGE)
        self.finished = self._counter(vllm.FINISHED)
        self.prompt_tokens = self._counter(vllm.PROMPT_TOKENS)
        self.generation_tokens = self._counter(vllm.GENERATION_TOKENS)
        self.preemptions = self._counter(vllm.PREEMPTIONS)
        self.prefix_queries = self._counter(vllm.PREFIX_CACHE_QUERIES)
        self.prefix_hits = self._counter(vllm.PREFIX_CACHE_HITS)
        self.http = Counter(
            *_named(vllm.HTTP_REQUESTS), labelnames=_labels(vllm.HTTP_REQUESTS), registry=self._registry
        )

    def answered(self, status: int) -> None:
        """One HTTP answer has ended."""
        self.http.labels(handler="/v1/chat/completions", method="POST", status=f"{status // 100}xx").inc()

    @contextmanager
    def request(self) -> Iterator[Callable[[], None]]:
        """A request from its begin to its last token; what is given is called with each of them."""
        self._asked()
        times = [time.monotonic()]

        def token() -> None:
            times.append(time.monotonic())
            (self.ttft if len(times) == 2 else self.itl).observe(times[-1] - times[-2])
            self.generation_tokens.inc()

        self.running.inc()
        try:
            yield token
            self._finish(times)
        finally:
            self.running.dec()

    def _asked(self) -> None:
        self.queue_time.observe(0.001)
        self.prompt_tokens.inc(8)
        self.prefix_queries.inc(8)
        self.prefix_hits.inc(4)
        self.cache.set(0.25)

    def _finish(self, times: Sequence[float]) -> None:
        begun, *tokens = times
        self.e2e.observe(time.monotonic() - begun)
        if len(tokens) > 1:
            self.time_per_token.observe((tokens[-1] - tokens[0]) / (len(tokens) - 1))
        self.finished.inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _histogram(self, metric: PrometheusMetric) -> Histogram:
        edges = self._buckets.get(metric.family, metric.edges)
        made = Histogram(*_named(metric), labelnames=_labels(metric), buckets=edges, registry=self._registry)
        return made.labels(**self._of(metric))

    def _gauge(self, metric: PrometheusMetric) -> Gauge:
        return Gauge(*_named(metric), labelnames=_labels(metric), registry=self._registry).labels(**self._of(metric))

    def _counter(self, metric: PrometheusMetric) -> Counter:
        return Counter(*_named(metric), labelnames=_labels(metric), registry=self._registry).labels(**self._of(metric))

    def _of(self, metric: PrometheusMetric) -> dict[str, str]:
        return {label: self._values[label] for label in _labels(metric)}


def _named(metric: PrometheusMetric) -> tuple[str, str]:
    """Its name, and that it is a stand-in's; the client adds `_total` itself."""
    return metric.name.removesuffix("_total"), "as a stand-in counts it"


def _labels(metric: PrometheusMetric) -> tuple[str, ...]:
    """Without what Prometheus adds when it scrapes."""
    return tuple(label for label in metric.labels if label not in TARGET)


class StandInEngine:
    """Answers every chat with the same number of tokens at the same pace."""

    def __init__(self, *, model: str, tokens: int, interval_seconds: float) -> None:
        self.model = model
        self.tokens = tokens
        self.interval_seconds = interval_seconds
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

    async def _answer(self, operation: dict[str, Any]) -> Response:
        if operation["model"] != self.model:
            return JSONResponse({"error": {"message": f"no model {operation['model']}"}}, status_code=404)
        tokens = min(self.tokens, operation.get("max_tokens") or self.tokens)
        if operation.get("stream"):
            return StreamingResponse(self._stream(tokens), media_type="text/event-stream")
        content = "".join([piece async for piece in self._words(tokens)])
        return JSONResponse({"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]})

    async def _stream(self, tokens: int) -> AsyncIterator[str]:
        async for word in self._words(tokens):
            choice = {"index": 0, "delta": {"content": word}}
            yield f"data: {json.dumps({'model': self.model, 'choices': [choice]})}\n\n"
        yield "data: [DONE]\n\n"

    async def _words(self, tokens: int) -> AsyncIterator[str]:
        with self.metrics.request() as token:
            for index in range(tokens):
                await asyncio.sleep(self.interval_seconds)
                token()
                yield f"{index} "


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="support-llm")
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--interval", type=float, default=0.02, help="seconds from token to token")
    parser.add_argument("--fail", help="say this and exit instead of serving")
    operation = parser.parse_args()
    if operation.fail:
        sys.exit(operation.fail)
    print(f"stand-in engine {os.getpid()} on port {operation.port}", flush=True)
    engine = StandInEngine(model=operation.model, tokens=operation.tokens, interval_seconds=operation.interval)
    uvicorn.run(engine.app(), host="127.0.0.1", port=operation.port, log_level="warning", timeout_graceful_shutdown=30)


if __name__ == "__main__":
    main()
