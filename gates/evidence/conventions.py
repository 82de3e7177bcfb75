"""Names that proxies, engines and Prometheus give to what they count, and who counts an arm's requests.

The scrape configuration labels every series of an arm with `region`, `role` and `version`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gates.evidence.batch import LatencyMetric
from tidegate.core.metrics import fits

RESPONSES = "envoy_cluster_upstream_rq"
"""By `RESPONSE_CODE`, once the headers are there. A stream cut after its headers is in here as a 200."""
RESPONSE_CODE = "envoy_response_code"
TORN = "envoy_cluster_upstream_cx_destroy_remote_with_active_rq"
"""Connections that the engine closed under a request: before its headers (a 503 as well) or after."""
TIMEOUTS = "envoy_cluster_upstream_rq_per_try_idle_timeout"
"""An engine that fell silent, before its headers (a 504 as well) or after. There is no other limit in time."""


@dataclass(frozen=True)
class TimesHistogram:
    """The name of a histogram, and what its numbers are."""

    name: str
    """Without the suffix of a classic histogram's buckets; a native histogram has the name itself."""
    unit_seconds: float = 1.0
    """How long a unit of its edges is; native ones are read in seconds only."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Labels with regular expressions: whatever has others is no answered request."""
    pod: str | None = None
    """The label that tells engines of an arm apart; None for that of all others."""


HISTOGRAMS = {
    LatencyMetric.TTFT: "vllm:time_to_first_token_seconds",
    # Per request, as the load measures it; vllm:inter_token_latency_seconds is per token.
    LatencyMetric.ITL: "vllm:request_time_per_output_token_seconds",
    LatencyMetric.E2E: "vllm:e2e_request_latency_seconds",
}
Histograms = Mapping[LatencyMetric, TimesHistogram]
BY_VLLM: Histograms = {metric: TimesHistogram(name) for metric, name in HISTOGRAMS.items()}

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


@dataclass(frozen=True)
class RequestCounters:
    """Names of counters, and which of their series are requests of users."""

    whose: str
    """For people: `the proxy's`."""
    responses: str
    """Requests by the status of their answers."""
    status: str
    """The label that says it: `200`, or a class such as `2xx`."""
    torn: str = ""
    """Streams that were cut; empty where nobody counts them."""
    timeouts: str = ""
    own: tuple[str, ...] = ()
    """More labels that tell the series of one target apart."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Labels with regular expressions: whatever has others is nobody's request."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """The same: whatever has these failed, whatever its status says."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Roles that it knows under another name."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its counters."""
        return tuple(name for name in (self.responses, self.torn, self.timeouts) if name)

    def is_of_users(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels counts what users asked."""
        return fits(labels, self.only)

    def is_broken(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels counts requests that failed behind a status that says otherwise."""
        return bool(self.broken) and fits(labels, self.broken)


BY_PROXY = RequestCounters(whose="the proxy's", responses=RESPONSES, status=RESPONSE_CODE, torn=TORN, timeouts=TIMEOUTS)
"""Envoy in front of the engines: sees cut streams, timeouts and engines that are gone."""

BY_ENGINE = RequestCounters(
    whose="the engines'",
    responses="http_requests_total",
    status="status",
    own=("handler", "method"),
    only={"method": "POST", "handler": "/v1/.*"},
    # An engine does not know that what it answers are copies.
    roles={"shadow": "canary"},
)
"""vLLM's own API server, where no proxy of ours is: sees what it answered, not that it died."""
