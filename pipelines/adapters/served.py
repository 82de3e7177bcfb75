"""How many requests each engine of a version has answered, as a region's Prometheus knows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from gates.evidence.conventions import BY_ENGINE, POD
from gates.evidence.selector import NAME, selector
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.adapters.prometheus import PrometheusClient
from tidegate.core.threads import call_in_thread

TIMEOUT_SECONDS = 5


class ServedByPrometheus:
    """A `RequestCounter`: what engines themselves counted, copies and probes included."""

    def __init__(self, at: str | PrometheusEndpoint, *, delivery: str, region: str) -> None:
        """`at` is Prometheus' own address; nothing is asked yet."""
        self._client = PrometheusClient(at, timeout_seconds=TIMEOUT_SECONDS)
        self._labels = {NAME: BY_ENGINE.responses, "service": delivery, "region": region}

    async def served(self, version: str) -> Mapping[str, float]:
        query = selector({**self._labels, "version": version})
        answer = await call_in_thread(self._client.query, query, datetime.now(UTC))
        counts: dict[str, float] = {}
        for series in answer.series:
            if series.value and BY_ENGINE.is_of_users(series.metric):
                pod = series.metric.get(POD, "")
                counts[pod] = counts.get(pod, 0.0) + series.value[1]
        return counts
