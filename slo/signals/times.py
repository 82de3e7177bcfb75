"""Times of requests: heat maps from the buckets, and three quantiles."""

from __future__ import annotations

from slo.metrics.vllm import E2E, ITL, QUEUE_TIME, TTFT
from slo.promql import Scope

_TIMES = {"ttft": TTFT, "itl": ITL, "e2e": E2E, "queue": QUEUE_TIME}
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_MINUTE = Scope(window="1m")


def time_rules() -> dict[str, str]:
    """Queries by the name that they are recorded under; without requests there is no quantile."""
    rules: dict[str, str] = {}
    for name, histogram in _TIMES.items():
        buckets = f"{name}_seconds_bucket:rate1m"
        rules[buckets] = _MINUTE.rate(f"{histogram.name}_bucket", per="le")
        for quantile, share in _QUANTILES.items():
            # Of no requests a quantile is NaN, which is not >= 0.
            rules[f"{name}_seconds:{quantile}_1m"] = f"histogram_quantile({share}, tidegate:{buckets}) >= 0"
    return rules
