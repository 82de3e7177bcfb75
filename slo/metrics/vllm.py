"""What vLLM 0.32 exports at `/metrics`, and is kept when it is scraped.

Edges are those of `vllm/v1/metrics/buckets.py`. Left out are what KV connectors and `/v1/realtime` add, and
`*_created`, the time at which a counter began.
"""

from __future__ import annotations

from slo.metrics.model import TARGET, MetricKind, PrometheusMetric

_EACH = ("engine", "model_name", *TARGET)
"""`engine` counts the data-parallel ranks of one process."""


def _counter(name: str, *labels: str, only_with: str = "") -> PrometheusMetric:
    return PrometheusMetric(
        name=f"vllm:{name}_total", kind=MetricKind.COUNTER, labels=(*labels, *_EACH), only_with=only_with
    )


def _gauge(name: str, *labels: str, only_with: str = "") -> PrometheusMetric:
    return PrometheusMetric(name=f"vllm:{name}", kind=MetricKind.GAUGE, labels=(*labels, *_EACH), only_with=only_with)


def _histogram(name: str, edges: tuple[float, ...], *, only_with: str = "") -> PrometheusMetric:
    return PrometheusMetric(
        name=f"vllm:{name}", kind=MetricKind.HISTOGRAM, labels=_EACH, edges=edges, only_with=only_with
    )


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
_RESIDENCE = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800,
)
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_CHOICES = (1, 2, 5, 10, 20)
_TIMES_PREEMPTED = (1, 2, 3, 4, 5, 10, 20)
# fmt: on

TTFT = _histogram("time_to_first_token_seconds", _FIRST_TOKEN)
ITL = _histogram("inter_token_latency_seconds", _BETWEEN_TOKENS)
"""Of each token after a request's first."""
TIME_PER_OUTPUT_TOKEN = _histogram("request_time_per_output_token_seconds", _BETWEEN_TOKENS)
"""Of each request, its mean."""
E2E = _histogram("e2e_request_latency_seconds", _LATENCY)
QUEUE_TIME = _histogram("request_queue_time_seconds", _LATENCY)

KV_CACHE_USAGE = _gauge("kv_cache_usage_perc")
"""0 to 1, whatever its name says."""
RUNNING = _gauge("num_requests_running")
WAITING = _gauge("num_requests_waiting")
PREEMPTIONS = _counter("num_preemptions")
PREFIX_CACHE_HITS = _counter("prefix_cache_hits")
PREFIX_CACHE_QUERIES = _counter("prefix_cache_queries")
PROMPT_TOKENS = _counter("prompt_tokens")
GENERATION_TOKENS = _counter("generation_tokens")
FINISHED = _counter("request_success", "finished_reason")
"""Every end of a request that the engine knew of, bad ones too: stop, length, abort, error, repetition."""

_SPECULATION = "speculative decoding"
DRAFT_TOKENS = _counter("spec_decode_num_draft_tokens", only_with=_SPECULATION)
ACCEPTED_TOKENS = _counter("spec_decode_num_accepted_tokens", only_with=_SPECULATION)

HTTP_REQUESTS = PrometheusMetric(
    name="http_requests_total", kind=MetricKind.COUNTER, labels=("handler", "method", "status", *TARGET)
)
"""When an answer has ended; `status` is a class such as `2xx`, and no series of it is there before its first."""

_REST = (
    _counter("estimated_flops_per_gpu"),
    _counter("estimated_read_bytes_per_gpu"),
    _counter("estimated_write_bytes_per_gpu"),
    _gauge("num_requests_waiting_by_reason", "reason"),
    _gauge("num_requests_kv_fetch_by_stage", "stage", only_with="a KV connector that loads"),
    _gauge("engine_sleep_state", "sleep_state"),
    _counter("external_prefix_cache_queries"),
    _counter("external_prefix_cache_hits"),
    _counter("mm_cache_queries"),
    _counter("mm_cache_hits"),
    _counter("prompt_tokens_by_source", "source"),
    _counter("prompt_tokens_cached"),
    _counter("prompt_tokens_cached_by_source", "source"),
    _counter("corrupted_requests", only_with="VLLM_COMPUTE_NANS_IN_LOGITS"),
    _counter("watermark_requests", "status", only_with="a watermark"),
    PrometheusMetric(
        name="vllm:admission_rejections_total", kind=MetricKind.COUNTER, labels=("reason", "model_name", *TARGET)
    ),
    _histogram("iteration_tokens_total", _ITERATION),
    _histogram("request_params_n", _CHOICES),
    _histogram("request_num_preemptions", _TIMES_PREEMPTED),
    _histogram("request_inference_time_seconds", _LATENCY),
    _histogram("request_prefill_time_seconds", _LATENCY),
    _histogram("request_decode_time_seconds", _LATENCY),
    # Counted in tokens: 1, 2, 5, 10 and so on up to the longest context of the model.
    _histogram("request_prompt_tokens", ()),
    _histogram("request_generation_tokens", ()),
    _histogram("request_max_num_generation_tokens", ()),
    _histogram("request_params_max_tokens", ()),
    _histogram("request_prefill_kv_computed_tokens", ()),
    _histogram("kv_block_lifetime_seconds", _RESIDENCE, only_with="--kv-cache-metrics"),
    _histogram("kv_block_idle_before_evict_seconds", _RESIDENCE, only_with="--kv-cache-metrics"),
    _histogram("kv_block_reuse_gap_seconds", _RESIDENCE, only_with="--kv-cache-metrics"),
    PrometheusMetric(
        name="vllm:lora_requests_info",
        kind=MetricKind.GAUGE,
        labels=("max_lora", "waiting_lora_adapters", "running_lora_adapters", *TARGET),
        only_with="LoRA adapters",
    ),
    _counter("spec_decode_num_drafts", only_with=_SPECULATION),
    _counter("spec_decode_num_accepted_tokens_per_pos", "position", only_with=_SPECULATION),
    PrometheusMetric(name="process_resident_memory_bytes", kind=MetricKind.GAUGE, labels=TARGET),
    PrometheusMetric(name="process_start_time_seconds", kind=MetricKind.GAUGE, labels=TARGET),
    PrometheusMetric(name="process_cpu_seconds_total", kind=MetricKind.COUNTER, labels=TARGET),
)

ALTERED_BY = ("custom-histogram-buckets", "disable-log-stats")
"""Arguments of vLLM under which it exports other edges, or nothing of its own."""

VLLM = (
    *(TTFT, ITL, TIME_PER_OUTPUT_TOKEN, E2E, QUEUE_TIME),
    *(KV_CACHE_USAGE, RUNNING, WAITING, PREEMPTIONS, PREFIX_CACHE_HITS, PREFIX_CACHE_QUERIES),
    *(PROMPT_TOKENS, GENERATION_TOKENS, FINISHED, DRAFT_TOKENS, ACCEPTED_TOKENS, HTTP_REQUESTS),
    *_REST,
)
"""All of them; `vllm:cache_config_info` is left out, whose labels are the engine's settings."""
