"""What Envoy counts in a local fleet, as `rollouts/scrape.py` keeps and relabels it.

`role` and `version` come from a cluster's name: `canary_7`; a copy of a request is in cluster `shadow_7`.
"""

from __future__ import annotations

from slo.metrics.model import SERVICE, TARGET, Kind, Metric

_CLUSTER = ("envoy_cluster_name", *TARGET)
_USERS = ("envoy_http_conn_manager_prefix", "instance", SERVICE, "region")
"""What users met at the door; which engine served them is not known here."""

_MILLISECONDS = (
    *(0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000),
    *(30000, 60000, 300000, 600000, 1800000, 3600000),
)
"""Of every histogram; those of requests on a connection use them as plain numbers."""


def _counter(name: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name=f"envoy_{name}", kind=Kind.COUNTER, labels=labels)


def _gauge(name: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name=f"envoy_{name}", kind=Kind.GAUGE, labels=labels)


def _histogram(name: str, labels: tuple[str, ...]) -> Metric:
    return Metric(name=f"envoy_{name}", kind=Kind.HISTOGRAM, labels=labels, edges=_MILLISECONDS)


RESPONSES = _counter("cluster_upstream_rq", ("envoy_response_code", *_CLUSTER))
"""Requests, once the headers of their answers are there; the series of a code begins with its first."""
TORN = _counter("cluster_upstream_cx_destroy_remote_with_active_rq", _CLUSTER)
"""Connections that an engine closed under a request: before its headers (a 503 as well) or after (a 200)."""
TIMEOUTS = _counter("cluster_upstream_rq_per_try_idle_timeout", _CLUSTER)
"""An engine that fell silent: before its headers (a 504 as well) or after (a 200)."""
REGENERATED = _counter("vhost_vcluster_upstream_rq_total", ("envoy_virtual_cluster", "envoy_virtual_host", *TARGET))
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
    *(_counter(f"cluster_upstream_{name}", _CLUSTER) for name in _CLUSTER_COUNTERS),
    _counter("cluster_upstream_rq_xx", ("envoy_response_code_class", *_CLUSTER)),
    _gauge("cluster_upstream_rq_active", _CLUSTER),
    _gauge("cluster_upstream_rq_pending_active", _CLUSTER),
    _histogram("cluster_upstream_rq_per_cx", _CLUSTER),
    _histogram("cluster_upstream_rq_time", _CLUSTER),
    *(_counter(f"http_downstream_{name}", _USERS) for name in _USERS_COUNTERS),
    _counter("http_downstream_rq_xx", ("envoy_response_code_class", *_USERS)),
    _gauge("http_downstream_rq_active", _USERS),
    _gauge("http_downstream_cx_active", _USERS),
    _histogram("http_downstream_rq_time", _USERS),
)
