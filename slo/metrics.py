"""What SLOs, rules, gates and dashboards read of engines, proxies, GPUs and tidegate itself, as it is scraped.

Queries are checked against it, so that a name that nobody exports is found before an empty panel is. vLLM's names and
edges are those of 0.32, Envoy's those of the proxy on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidegate.core.model import Value

SERVICE = "service"
"""The label that says whose a series is: the delivery's name. One Prometheus may see many deliveries."""

TARGET = ("instance", SERVICE, "region", "role", "version")
"""What Prometheus itself puts on every series of an engine, besides `job`, which is another one in each cluster."""


class MetricKind(StrEnum):
    """As the line `# TYPE` of an exposition says it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class PrometheusMetric(Value):
    """One metric of one exporter."""

    name: str
    """Of a counter as it is scraped, with `_total` where it has that; of a histogram without `_bucket`."""
    kind: MetricKind
    labels: tuple[str, ...] = ()
    """All that its series have once they are scraped and relabelled; `le` of a histogram is left out."""
    edges: tuple[float, ...] = ()
    """Upper ends of a histogram's buckets, without +Inf; none where they depend on the model."""
    family: str = ""
    """Under which vLLM takes other edges for it (`custom-histogram-buckets`); empty where it takes none."""
    only_with: str = ""
    """What must be there for it to be exported, such as a GPU; empty when it always is."""

    @property
    def series(self) -> Mapping[str, tuple[str, ...]]:
        """The names of its series, each with its labels."""
        if self.kind is not MetricKind.HISTOGRAM:
            return {self.name: self.labels}
        totals = {f"{self.name}{part}": self.labels for part in ("_sum", "_count")}
        return {f"{self.name}_bucket": (*self.labels, "le"), **totals}


def _counter(name: str, *labels: str, only_with: str = "") -> PrometheusMetric:
    return PrometheusMetric(name=name, kind=MetricKind.COUNTER, labels=labels, only_with=only_with)


def _gauge(name: str, *labels: str, only_with: str = "") -> PrometheusMetric:
    return PrometheusMetric(name=name, kind=MetricKind.GAUGE, labels=labels, only_with=only_with)


def _histogram(name: str, edges: tuple[float, ...], family: str = "") -> PrometheusMetric:
    return PrometheusMetric(name=f"vllm:{name}", kind=MetricKind.HISTOGRAM, labels=_ENGINE, edges=edges, family=family)


_ENGINE = ("engine", "model_name", *TARGET)
"""`engine` counts the data-parallel ranks of one process."""
# fmt: off
_LATENCY = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)
_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)
_BETWEEN_TOKENS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)
# fmt: on
TTFT = _histogram("time_to_first_token_seconds", _FIRST_TOKEN, "time_to_first_token")
ITL = _histogram("inter_token_latency_seconds", _BETWEEN_TOKENS, "inter_token_latency")
"""Of each token after a request's first."""
TIME_PER_OUTPUT_TOKEN = _histogram("request_time_per_output_token_seconds", _BETWEEN_TOKENS, "inter_token_latency")
"""Of each request, its mean."""
E2E = _histogram("e2e_request_latency_seconds", _LATENCY, "request_latency")
QUEUE_TIME = _histogram("request_queue_time_seconds", _LATENCY, "request_latency")
DECODE_TIME = _histogram("request_decode_time_seconds", _LATENCY, "request_latency")
OUTPUT_TOKENS = _histogram("request_generation_tokens", ())

KV_CACHE_USAGE = _gauge("vllm:kv_cache_usage_perc", *_ENGINE)
"""0 to 1, whatever its name says."""
RUNNING = _gauge("vllm:num_requests_running", *_ENGINE)
WAITING = _gauge("vllm:num_requests_waiting", *_ENGINE)
PREEMPTIONS = _counter("vllm:num_preemptions_total", *_ENGINE)
PREFIX_CACHE_HITS = _counter("vllm:prefix_cache_hits_total", *_ENGINE)
PREFIX_CACHE_QUERIES = _counter("vllm:prefix_cache_queries_total", *_ENGINE)
PROMPT_TOKENS = _counter("vllm:prompt_tokens_total", *_ENGINE)
GENERATION_TOKENS = _counter("vllm:generation_tokens_total", *_ENGINE)
FINISHED = _counter("vllm:request_success_total", "finished_reason", *_ENGINE)
"""Every end of a request that the engine knew of, bad ones too: stop, length, abort, error, repetition."""
DRAFT_TOKENS = _counter("vllm:spec_decode_num_draft_tokens_total", *_ENGINE, only_with="speculative decoding")
ACCEPTED_TOKENS = _counter("vllm:spec_decode_num_accepted_tokens_total", *_ENGINE, only_with="speculative decoding")
HTTP_REQUESTS = _counter("http_requests_total", "handler", "method", "status", *TARGET)
"""When an answer has ended; `status` is a class such as `2xx`, and no series of it is there before its first."""
PROCESS_START = _gauge("process_start_time_seconds", *TARGET)

VLLM = (
    *(TTFT, ITL, TIME_PER_OUTPUT_TOKEN, E2E, QUEUE_TIME, DECODE_TIME, OUTPUT_TOKENS, KV_CACHE_USAGE),
    *(
        RUNNING,
        WAITING,
        PREEMPTIONS,
        PREFIX_CACHE_HITS,
        PREFIX_CACHE_QUERIES,
        PROMPT_TOKENS,
        GENERATION_TOKENS,
        FINISHED,
    ),
    *(DRAFT_TOKENS, ACCEPTED_TOKENS, HTTP_REQUESTS, PROCESS_START),
)
BUCKETS = "custom-histogram-buckets"
"""vLLM's argument for edges in place of its own, family by family."""
WITHOUT_METRICS = "disable-log-stats"
"""vLLM's argument under which it exports nothing of its own."""

ENGINE_START = _gauge("tidegate_engine_start_seconds", "compile_cache", *TARGET, only_with="our entrypoint")
"""From the start of the container's process 1 until users may ask; there is no series before."""
ENGINE_LOAD = _gauge("tidegate_engine_load_seconds", "compile_cache", *TARGET, only_with="our entrypoint")
"""From the start of vLLM until its engine is loaded: imports, weights, what is compiled or found, KV cache."""
ENGINE_READY = _gauge("tidegate_engine_ready_timestamp_seconds", *TARGET, only_with="our entrypoint")
"""Since when users may ask, in seconds since 1970."""
OF_STARTS = (ENGINE_START, ENGINE_LOAD, ENGINE_READY)

_CLUSTER = ("envoy_cluster_name", *TARGET)
RESPONSES = _counter("envoy_cluster_upstream_rq", "envoy_response_code", *_CLUSTER)
"""Requests, once the headers of their answers are there; the series of a code begins with its first."""
TORN = _counter("envoy_cluster_upstream_cx_destroy_remote_with_active_rq", *_CLUSTER)
"""Connections that an engine closed under a request: before its headers (a 503 as well) or after (a 200)."""
TIMEOUTS = _counter("envoy_cluster_upstream_rq_per_try_idle_timeout", *_CLUSTER)
"""An engine that fell silent: before its headers (a 504 as well) or after (a 200)."""
ENVOY = (RESPONSES, TORN, TIMEOUTS)

GPU_UTILISATION = _gauge(
    "DCGM_FI_DEV_GPU_UTIL", "gpu", "UUID", "device", "modelName", "Hostname", *TARGET, only_with="a GPU"
)
"""Percent of the time in which any kernel ran, 0 to 100."""


def _own(name: str, *labels: str) -> PrometheusMetric:
    return _gauge(f"tidegate_{name}", "instance", SERVICE, *labels)


GATE_NUMBER = _own("gate_number", "gate", "number", "stage", "region", "version")
"""Each number of a gate's last verdict."""
GATE_OUTCOME = _own("gate_outcome", "gate", "outcome", "stage", "region", "version")
"""1 for the outcome of a gate's last verdict, 0 for the others."""
DELIVERY = _own("delivery_info", "delivery", "model", "version", "champion")
STATE = _own("delivery_state", "delivery", "state", "version")
"""1 for the state that a delivery is in, 0 for the others."""
WEIGHT = _own("delivery_weight_percent", "region", "version")
MIRROR = _own("delivery_mirror_percent", "region", "version")
QUALITY = _own("quality_score", "dimension", "region", "role", "version")
"""0 to 1, of one dimension of a judge; `overall` is the weighted mean of all, `golden` the mean of the golden set."""
ALIAS = _own("registry_alias_info", "model", "alias", "version")
"""1 for the version that an alias of the registry means; `tidegate serve` says it while the registry answers."""
RUNNING_DELIVERY = _own("registry_delivery_running", "model")
"""1 while a delivery of the model is under way, no matter who started it; 0 else."""

OF_DELIVERIES = (GATE_NUMBER, GATE_OUTCOME, DELIVERY, STATE, WEIGHT, MIRROR, QUALITY)
OF_REGISTRY = (ALIAS, RUNNING_DELIVERY)
TIDEGATE = (*OF_DELIVERIES, *OF_REGISTRY)

INVENTORY = {metric.name: metric for metric in (*VLLM, *OF_STARTS, *ENVOY, GPU_UTILISATION, *TIDEGATE)}
"""By name; a histogram by its base name."""
