"""How many requests each engine of a version has answered, as a region's Prometheus knows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from gates.adapters.prometheus_api import NAME, PrometheusApi, selector
from gates.scraped.conventions import POD
from gates.scraped.counting import BY_ENGINE
from tidegate.core.beside import beside

TIMEOUT_SECONDS = 5


class ServedByPrometheus:
    """A `Served` of `rollouts.cluster.ports`: what engines themselves counted, copies and probes included."""

    def __init__(self, url: str, *, delivery: str, region: str) -> None:
        """`url` is Prometheus' own address; nothing is asked yet."""
        self._api = PrometheusApi(url, timeout_seconds=TIMEOUT_SECONDS)
        self._labels = {NAME: BY_ENGINE.responses, "service": delivery, "region": region}

    async def served(self, version: str) -> Mapping[str, float]:
        answer = await beside(self._api.ask, selector({**self._labels, "version": version}), datetime.now(UTC))
        counts: dict[str, float] = {}
        for series in answer:
            labels = series["metric"]
            if BY_ENGINE.is_of_users(labels):
                pod = labels.get(POD, "")
                counts[pod] = counts.get(pod, 0.0) + float(series["value"][1])
        return counts
