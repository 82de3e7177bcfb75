"""A `MetricSource` over Prometheus: Envoy's counters for requests, vLLM's histograms for latencies.

Envoy, not vLLM, counts the requests: vLLM takes a client that hangs up for a success and has 4xx
nowhere but in `http_requests_total`. The scrape configuration labels every series with region, role
and version.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util import Retry

from gates.counters import gained
from gates.distribution import Distribution
from gates.model import ArmKey, Counts, NoData
from gates.spec import LatencyMetric
from tidegate.core.errors import OutsideError

RESPONSES = "envoy_cluster_upstream_rq"
"""By `envoy_response_code`. A stream cut after its headers is in here as a 200."""
TORN = "envoy_cluster_upstream_cx_destroy_remote_with_active_rq"
"""Connections that the engine closed under a request: before its headers (a 503 as well) or after."""
TIMEOUTS = "envoy_cluster_upstream_rq_timeout"
"""Before the headers (a 504 as well) or after."""
HISTOGRAMS = {
    LatencyMetric.TTFT: "vllm:time_to_first_token_seconds_bucket",
    # Per request, as the load measures it; vllm:inter_token_latency_seconds is per token.
    LatencyMetric.ITL: "vllm:request_time_per_output_token_seconds_bucket",
    LatencyMetric.E2E: "vllm:e2e_request_latency_seconds_bucket",
}
LOOKBACK = timedelta(minutes=5)
"""How far before the window a series' last sample is looked for; Prometheus' own staleness."""


class PrometheusSource:
    """Reads raw counter samples and differences them itself."""

    def __init__(self, url: str, *, timeout_seconds: int = 5) -> None:
        """`url` is Prometheus' own address; nothing is asked yet."""
        self._url = url
        # The gate is asked again anyway; a retry in here would only hide how long it takes.
        session = requests.Session()
        # Prometheus is on the loopback here, and inside the cluster there: no proxy of the environment knows it.
        session.trust_env = False
        self._client = PrometheusConnect(url=url, timeout=timeout_seconds, retry=Retry(0), session=session)

    def requests(self, arm: ArmKey, since: datetime, until: datetime) -> Counts | NoData:
        """As `MetricSource`, from Envoy; streams cut after their headers are counted as far as Envoy tells."""
        by_code: dict[int, float] = defaultdict(float)
        for labels, count in self._gains(RESPONSES, arm, since, until):
            by_code[int(labels["envoy_response_code"])] += count
        if not by_code:
            return NoData(reason=f"Prometheus has no {RESPONSES} of {arm}")
        # Envoy counts each request once, under the status of its headers; what broke later is in TORN and TIMEOUTS.
        total = sum(by_code.values())
        refused = sum(count for code, count in by_code.items() if 400 <= code < 500)
        failed = sum(count for code, count in by_code.items() if code >= 500)
        for counter, code in ((TORN, 503), (TIMEOUTS, 504)):
            # Those that broke before their headers are among the 503s or 504s already.
            lost = sum(count for _, count in self._gains(counter, arm, since, until))
            failed += max(0.0, lost - by_code.get(code, 0.0))
        return Counts(total=round(total), failed=round(min(failed, total - refused)), refused=round(refused))

    def latencies(self, metric: LatencyMetric, arm: ArmKey, since: datetime, until: datetime) -> Distribution | NoData:
        """As `MetricSource`, from the engine's histogram."""
        cumulated: dict[float, float] = defaultdict(float)
        for labels, count in self._gains(HISTOGRAMS[metric], arm, since, until):
            cumulated[float(labels["le"])] += count
        if not cumulated:
            return NoData(reason=f"Prometheus has no {HISTOGRAMS[metric]} of {arm}")
        # Prometheus cumulates: each bucket holds those below it too.
        edges = sorted(cumulated)
        lower = [0.0, *(cumulated[edge] for edge in edges)]
        counts = [cumulated[edge] - below for edge, below in zip(edges, lower, strict=False)]
        return Distribution.from_buckets(edges, counts)

    def _gains(
        self, metric: str, arm: ArmKey, since: datetime, until: datetime
    ) -> Iterator[tuple[dict[str, str], float]]:
        """Every series of `metric` with its labels and what it gained in the window."""
        # Raw samples of the whole span, from before the window on: `gained` needs the last value before it.
        span = math.ceil((until - since + LOOKBACK).total_seconds())
        query = f"{metric}{_selector(arm)}[{span}s]"
        for series in self._ask(query, until):
            samples = [(float(at), float(value)) for at, value in series["values"]]
            yield series["metric"], gained(samples, since.timestamp())

    def _ask(self, query: str, at: datetime) -> list[dict[str, Any]]:
        try:
            answer: list[dict[str, Any]] = self._client.custom_query(query, params={"time": at.timestamp()})
        except requests.RequestException as error:
            hint = "is it running, and is this its address?"
            raise OutsideError(f"Prometheus at {self._url} does not answer", hint=hint, detail=str(error)) from error
        except PrometheusApiClientException as error:
            raise OutsideError(f"Prometheus at {self._url} refused {query}", detail=str(error)) from error
        return answer


def _selector(arm: ArmKey) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in arm.model_dump().items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
