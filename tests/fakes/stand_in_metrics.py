"""What a stand-in engine counts: the metrics of vLLM that rules and gates read, under its names and on its edges."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from slo.metrics import vllm
from slo.metrics.model import TARGET, Metric

ENGINE = "0"


class StandInMetrics:
    """Counters, gauges and histograms of one engine."""

    def __init__(self, model: str) -> None:
        self._registry = CollectorRegistry()
        self._values = {"model_name": model, "engine": ENGINE, "finished_reason": "stop"}
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

    def asked(self) -> float:
        """A request is let in; returns when."""
        self.queue_time.observe(0.001)
        self.prompt_tokens.inc(8)
        self.prefix_queries.inc(8)
        self.prefix_hits.inc(4)
        self.cache.set(0.25)
        return time.monotonic()

    def finish(self, begun: float, first: float, tokens: int) -> None:
        """A request got all its tokens; the first one after so many seconds."""
        seconds = time.monotonic() - begun
        self.e2e.observe(seconds)
        if tokens > 1:
            self.time_per_token.observe((seconds - first) / (tokens - 1))
        self.finished.inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _histogram(self, metric: Metric) -> Histogram:
        made = Histogram(*_named(metric), labelnames=_labels(metric), buckets=metric.edges, registry=self._registry)
        return made.labels(**self._of(metric))

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(*_named(metric), labelnames=_labels(metric), registry=self._registry).labels(**self._of(metric))

    def _counter(self, metric: Metric) -> Counter:
        return Counter(*_named(metric), labelnames=_labels(metric), registry=self._registry).labels(**self._of(metric))

    def _of(self, metric: Metric) -> dict[str, str]:
        return {label: self._values[label] for label in _labels(metric)}


def _named(metric: Metric) -> tuple[str, str]:
    """Its name, and that it is a stand-in's; the client adds `_total` itself."""
    return metric.name.removesuffix("_total"), "as a stand-in counts it"


def _labels(metric: Metric) -> tuple[str, ...]:
    """Without what Prometheus adds when it scrapes."""
    return tuple(label for label in metric.labels if label not in TARGET)
