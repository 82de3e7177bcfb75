"""Names that proxies, engines and Prometheus give to what they count, in one place.

The scrape configuration labels every series of an arm with `region`, `role` and `version`.
"""

from __future__ import annotations

from gates.spec import LatencyMetric

RESPONSES = "envoy_cluster_upstream_rq"
"""By `RESPONSE_CODE`, once the headers are there. A stream cut after its headers is in here as a 200."""
RESPONSE_CODE = "envoy_response_code"
TORN = "envoy_cluster_upstream_cx_destroy_remote_with_active_rq"
"""Connections that the engine closed under a request: before its headers (a 503 as well) or after."""
TIMEOUTS = "envoy_cluster_upstream_rq_per_try_idle_timeout"
"""An engine that fell silent, before its headers (a 504 as well) or after. There is no other limit in time."""

HISTOGRAMS = {
    LatencyMetric.TTFT: "vllm:time_to_first_token_seconds",
    # Per request, as the load measures it; vllm:inter_token_latency_seconds is per token.
    LatencyMetric.ITL: "vllm:request_time_per_output_token_seconds",
    LatencyMetric.E2E: "vllm:e2e_request_latency_seconds",
}
"""Without the suffix of a classic histogram's buckets; a native histogram has the name itself."""
BUCKET = "_bucket"
BUCKET_EDGE = "le"

POD = "pod"
"""Set by Prometheus' service discovery in Kubernetes."""

JOB = "job"
INSTANCE = "instance"
UP = "up"
"""1 at every scrape that succeeded, at the very time of its samples."""
PROCESS_START = "process_start_time_seconds"
"""Unix time, by the target's own clock."""
