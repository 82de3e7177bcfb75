"""Requests and what became of them."""

from __future__ import annotations

from slo.metrics.envoy import REGENERATED
from slo.metrics.vllm import FINISHED
from slo.promql import Scope, marked, or_zero, some
from slo.requests import requests
from slo.spec import CountedBy

_MINUTE, _FIVE_MINUTES = Scope(window="1m"), Scope(window="5m")


def traffic_rules(counted_by: CountedBy) -> dict[str, str]:
    """Queries by the name that they are recorded under.

    The share of errors is that of an availability SLO: refusals are neither bad nor good.
    """
    counted = requests(counted_by, _MINUTE)
    judged = "(tidegate:requests:rate1m - tidegate:refusals:rate1m)"
    judged = _MINUTE.greatest(marked("tidegate:errors:rate1m", "failed"), judged)
    rules = {
        "requests:rate1m": counted.all,
        "errors:rate1m": counted.failed,
        "refusals:rate1m": counted.refused,
        "error_ratio:rate1m": f"tidegate:errors:rate1m / {some(judged)}",
        "finish_reasons:rate1m": _MINUTE.rate(FINISHED.name, per="finished_reason"),
    }
    return rules | (_regenerations() if counted_by is CountedBy.PROXY else {})


def _regenerations() -> dict[str, str]:
    """Who sends an answer back is counted by the proxy; it is the version that gave the answer which is told here."""
    again = _FIVE_MINUTES.rate(REGENERATED.name, 'envoy_virtual_host="users"', 'role!=""')
    return {"regenerations:rate5m": or_zero(again, "tidegate:requests:rate1m")}
