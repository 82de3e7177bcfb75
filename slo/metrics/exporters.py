"""What exporters besides vLLM say: Envoy in a local fleet, NVIDIA's DCGM exporter, and tidegate itself.

An engine that runs under tidegate's entrypoint says how it started, next to vLLM's own metrics and from its process.

Envoy's `role` and `version` come from a cluster's name, such as `canary_7`; a copy of a request is in `shadow_7`
(`rollouts/scrape.py` keeps and relabels them). Those of a GPU are the ones of the pod that it is given to, joined by
the one who scrapes the exporter. tidegate sets every label of its own accord, also those that Prometheus sets on
engines.
"""

from __future__ import annotations

from slo.metrics.model import SERVICE, TARGET, MetricKind, PrometheusMetric

_CLUSTER = ("envoy_cluster_name", *TARGET)
_USERS = ("envoy_http_conn_manager_prefix", "instance", SERVICE, "region")
"""What users met at the door; which engine served them is not known here."""

_MILLISECONDS = (
    *(0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000),
    *(30000, 60000, 300000, 600000, 1800000, 3600000),
)
"""Of every histogram; those of requests on a connection use them as plain numbers."""


def _envoy_counter(name: str, labels: tuple[str, ...]) -> PrometheusMetric:
    return PrometheusMetric(name=f"envoy_{name}", kind=MetricKind.COUNTER, labels=labels)


def _envoy_gauge(name: str, labels: tuple[str, ...]) -> PrometheusMetric:
    return PrometheusMetric(name=f"envoy_{name}", kind=MetricKind.GAUGE, labels=labels)


def _envoy_histogram(name: str, labels: tuple[str, ...]) -> PrometheusMetric:
    return PrometheusMetric(name=f"envoy_{name}", kind=MetricKind.HISTOGRAM, labels=labels, edges=_MILLISECONDS)


RESPONSES = _envoy_counter("cluster_upstream_rq", ("envoy_response_code", *_CLUSTER))
"""Requests, once the headers of their answers are there; the series of a code begins with its first."""
TORN = _envoy_counter("cluster_upstream_cx_destroy_remote_with_active_rq", _CLUSTER)
"""Connections that an engine closed under a request: before its headers (a 503 as well) or after (a 200)."""
TIMEOUTS = _envoy_counter("cluster_upstream_rq_per_try_idle_timeout", _CLUSTER)
"""An engine that fell silent: before its headers (a 504 as well) or after (a 200)."""
REGENERATED = _envoy_counter(
    "vhost_vcluster_upstream_rq_total", ("envoy_virtual_cluster", "envoy_virtual_host", *TARGET)
)
"""Requests of users who asked again; `role` and `version` are those of the engine whose answer they did not want."""

# fmt: off
_CLUSTER_COUNTERS = (
    "cx_connect_fail", "cx_destroy_local_with_active_rq", "cx_destroy_with_active_rq", "rq_0rtt", "rq_active_overflow",
    "rq_cancelled", "rq_completed", "rq_maintenance_mode", "rq_max_duration_reached", "rq_pending_failure_eject",
    "rq_pending_overflow", "rq_pending_total", "rq_per_try_timeout", "rq_retry", "rq_timeout",
    "rq_retry_backoff_exponential", "rq_retry_backoff_ratelimited", "rq_retry_limit_exceeded", "rq_retry_overflow",
    "rq_retry_success", "rq_rx_reset", "rq_rx_reset_no_error", "rq_total", "rq_tx_reset",
)
_USERS_COUNTERS = (
    "rq_completed", "rq_failed_path_normalization", "rq_header_timeout", "rq_http1_total", "rq_http2_total",
    "rq_http3_total", "rq_idle_timeout", "rq_max_duration_reached", "rq_non_relative_path", "rq_overload_close",
    "rq_redirected_with_normalized_path", "rq_rejected_via_ip_detection", "rq_response_before_rq_complete",
    "rq_rx_reset", "rq_timeout", "rq_too_large", "rq_too_many_premature_resets", "rq_total", "rq_tx_reset",
    "rq_ws_on_non_ws_route",
)
# fmt: on

ENVOY = (
    RESPONSES,
    TORN,
    TIMEOUTS,
    REGENERATED,
    *(_envoy_counter(f"cluster_upstream_{name}", _CLUSTER) for name in _CLUSTER_COUNTERS),
    _envoy_counter("cluster_upstream_rq_xx", ("envoy_response_code_class", *_CLUSTER)),
    _envoy_gauge("cluster_upstream_rq_active", _CLUSTER),
    _envoy_gauge("cluster_upstream_rq_pending_active", _CLUSTER),
    _envoy_histogram("cluster_upstream_rq_per_cx", _CLUSTER),
    _envoy_histogram("cluster_upstream_rq_time", _CLUSTER),
    *(_envoy_counter(f"http_downstream_{name}", _USERS) for name in _USERS_COUNTERS),
    _envoy_counter("http_downstream_rq_xx", ("envoy_response_code_class", *_USERS)),
    _envoy_gauge("http_downstream_rq_active", _USERS),
    _envoy_gauge("http_downstream_cx_active", _USERS),
    _envoy_histogram("http_downstream_rq_time", _USERS),
)


_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname", *TARGET)


def _of_gpu(name: str, kind: MetricKind = MetricKind.GAUGE) -> PrometheusMetric:
    return PrometheusMetric(name=f"DCGM_FI_{name}", kind=kind, labels=_LABELS, only_with="a GPU")


GPU_UTILISATION = _of_gpu("DEV_GPU_UTIL")
"""Percent of the time in which any kernel ran, 0 to 100."""
MEMORY_USED = _of_gpu("DEV_FB_USED")
"""MiB."""
MEMORY_FREE = _of_gpu("DEV_FB_FREE")
"""MiB."""
POWER = _of_gpu("DEV_POWER_USAGE")
"""Watts."""
ENERGY = _of_gpu("DEV_TOTAL_ENERGY_CONSUMPTION", MetricKind.COUNTER)
"""Millijoules since the driver was loaded."""

DCGM = (
    GPU_UTILISATION,
    MEMORY_USED,
    MEMORY_FREE,
    POWER,
    ENERGY,
    _of_gpu("DEV_MEM_COPY_UTIL"),
    _of_gpu("DEV_GPU_TEMP"),
    _of_gpu("DEV_XID_ERRORS"),
    _of_gpu("PROF_GR_ENGINE_ACTIVE"),
    _of_gpu("PROF_PIPE_TENSOR_ACTIVE"),
    _of_gpu("PROF_DRAM_ACTIVE"),
)


def _of_start(name: str, *labels: str) -> PrometheusMetric:
    return PrometheusMetric(
        name=f"tidegate_engine_{name}", kind=MetricKind.GAUGE, labels=(*labels, *TARGET), only_with="our entrypoint"
    )


ENGINE_START = _of_start("start_seconds", "compile_cache")
"""From the start of the container's process 1 until users may ask; there is no series before."""
ENGINE_LOAD = _of_start("load_seconds", "compile_cache")
"""From the start of vLLM until its engine is loaded: imports, weights, what is compiled or found, KV cache."""
ENGINE_READY = _of_start("ready_timestamp_seconds")
"""Since when users may ask, in seconds since 1970."""

OF_STARTS = (ENGINE_START, ENGINE_LOAD, ENGINE_READY)


def _own_gauge(name: str, *labels: str) -> PrometheusMetric:
    return PrometheusMetric(name=f"tidegate_{name}", kind=MetricKind.GAUGE, labels=("instance", SERVICE, *labels))


GATE_NUMBER = _own_gauge("gate_number", "gate", "number", "stage", "region", "version")
"""Each number of a gate's last verdict."""
GATE_OUTCOME = _own_gauge("gate_outcome", "gate", "outcome", "stage", "region", "version")
"""1 for the outcome of a gate's last verdict, 0 for the others."""
DELIVERY = _own_gauge("delivery_info", "delivery", "model", "version", "champion")
STATE = _own_gauge("delivery_state", "delivery", "state", "version")
"""1 for the state that a delivery is in, 0 for the others."""
WEIGHT = _own_gauge("delivery_weight_percent", "region", "version")
MIRROR = _own_gauge("delivery_mirror_percent", "region", "version")
QUALITY = _own_gauge("quality_score", "dimension", "region", "role", "version")
"""0 to 1, of one dimension of a judge; `overall` is the weighted mean of all, `golden` the mean of the golden set."""

ALIAS = _own_gauge("registry_alias_info", "model", "alias", "version")
"""1 for the version that an alias of the registry means; `tidegate serve` says it while the registry answers."""
RUNNING_DELIVERY = _own_gauge("registry_delivery_running", "model")
"""1 while a delivery of the model is under way, no matter who started it; 0 else."""

OF_DELIVERIES = (GATE_NUMBER, GATE_OUTCOME, DELIVERY, STATE, WEIGHT, MIRROR, QUALITY)
OF_REGISTRY = (ALIAS, RUNNING_DELIVERY)
TIDEGATE = (*OF_DELIVERIES, *OF_REGISTRY)
