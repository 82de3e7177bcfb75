"""The names of vLLM, Istio, Envoy Gateway and ingress-nginx, as their own sources and documentation have them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidegate.core.metrics.model import MetricSignal, RequestSeries, SourceNames, TimeSeries
from tidegate.core.model import Value


class PresetName(StrEnum):
    """Whose metrics."""

    VLLM = "vllm"
    ISTIO = "istio"
    ENVOY_GATEWAY = "envoy-gateway"
    NGINX = "nginx"


class Preset(Value):
    """What a source of that kind has."""

    names: SourceNames
    label: str = ""
    """Tells arms apart, where nobody says another one; empty for the labels of our own scrape."""
    pod: str = ""
    """Tells the engines of an arm apart; empty where it is unknown."""
    engines: bool = False
    """Whether it also tells what only an engine knows."""

    @property
    def signals(self) -> tuple[MetricSignal, ...]:
        """All that it tells."""
        named = tuple(signal for signal in MetricSignal if getattr(self.names, signal, None) is not None)
        return (*named, *((MetricSignal.ENGINES,) if self.engines else ()))


# fmt: off
_ENVOYS_EDGES = (
    0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 600000, 1800000, 3600000,
)
"""Milliseconds; Envoy's own, which Istio and Envoy Gateway leave as they are."""
_GO_CLIENTS_EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Seconds; `prometheus.DefBuckets`, unless the controller is started with `--time-buckets`."""
# fmt: on

_VLLM = SourceNames(
    # vllm/entrypoints: instrumented by prometheus-fastapi-instrumentator; `status` is a class.
    requests=RequestSeries(
        metric="http_requests_total", status="status", match={"method": "POST", "handler": "/v1/.*"}
    ),
    ttft=TimeSeries(metric="vllm:time_to_first_token_seconds"),
    # Per request; vllm:inter_token_latency_seconds is per token.
    itl=TimeSeries(metric="vllm:request_time_per_output_token_seconds"),
    e2e=TimeSeries(metric="vllm:e2e_request_latency_seconds"),
    queue_time=TimeSeries(metric="vllm:request_queue_time_seconds"),
)

_CUT_FLAGS = "(.*,)?(UC|UR|UT|UPE|LR|SI|DT)(,.*)?"
"""Envoy's response flags of what ends a stream after its headers: the upstream's connection, reset, time or protocol.

Not `DC`, a client that went away."""

_ISTIO = SourceNames(
    # https://istio.io/latest/docs/reference/config/metrics/. Of a request through gateway and sidecar both report;
    # the sender also knows of engines that could not be reached.
    match={"reporter": "source"},
    requests=RequestSeries(
        metric="istio_requests_total", status="response_code", broken={"response_flags": _CUT_FLAGS}
    ),
    e2e=TimeSeries(
        metric="istio_request_duration_milliseconds",
        unit="milliseconds",
        match={"response_code": "2.."},
        edges=_ENVOYS_EDGES,
    ),
)

_ENVOY_GATEWAY = SourceNames(
    # https://www.envoyproxy.io/docs/envoy/latest/configuration/upstream/cluster_manager/cluster_stats. By code and not
    # by class (`_xx`): a 503 and a 504 are in `cut` and `timeouts` too, and are not counted twice.
    requests=RequestSeries(
        metric="envoy_cluster_upstream_rq",
        status="envoy_response_code",
        cut="envoy_cluster_upstream_cx_destroy_remote_with_active_rq",
        timeouts="envoy_cluster_upstream_rq_timeout",
    ),
    # Of every request that ended, whatever its status: the histogram has no label for that.
    e2e=TimeSeries(metric="envoy_cluster_upstream_rq_time", unit="milliseconds", edges=_ENVOYS_EDGES),
)

_NGINX = SourceNames(
    # kubernetes/ingress-nginx, internal/ingress/metric/collectors/socket.go.
    requests=RequestSeries(metric="nginx_ingress_controller_requests", status="status"),
    # From the request's first byte to the answer's last; its help text says milliseconds, its values are seconds.
    e2e=TimeSeries(
        metric="nginx_ingress_controller_request_duration_seconds",
        match={"status": "2.."},
        edges=_GO_CLIENTS_EDGES,
    ),
)

PRESETS: Mapping[PresetName, Preset] = {
    PresetName.VLLM: Preset(names=_VLLM, pod="pod", engines=True),
    # The Service that the request was sent to: also known when no engine of it could be reached.
    PresetName.ISTIO: Preset(names=_ISTIO, label="destination_service_name"),
    PresetName.ENVOY_GATEWAY: Preset(names=_ENVOY_GATEWAY, label="envoy_cluster_name"),
    # rootfs/etc/nginx/lua/monitor.lua: the upstream of the canary's ingress, empty for the main one's.
    PresetName.NGINX: Preset(names=_NGINX, label="canary"),
}


def presets_with(signal: MetricSignal) -> tuple[PresetName, ...]:
    """Whose sources tell it."""
    return tuple(name for name, preset in PRESETS.items() if signal in preset.signals)
