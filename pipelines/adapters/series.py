"""Series of engines: how many requests each has answered, and whether there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from gates.evidence.names import NAME, POD, UP, selector
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.adapters.prometheus import PrometheusClient
from tidegate.core.metrics import PresetName, fits, presets
from tidegate.core.threads import call_in_thread

TIMEOUT_SECONDS = 5


class ServedByPrometheus:
    """What engines themselves counted, copies and probes included."""

    def __init__(self, at: str | PrometheusEndpoint, labels: Callable[[str], Mapping[str, str]]) -> None:
        """`at` is Prometheus' own address, `labels` those of a version's series; nothing is asked yet."""
        self._client = PrometheusClient(at, timeout_seconds=TIMEOUT_SECONDS)
        self._labels = labels

    async def served(self, version: str) -> Mapping[str, float]:
        requests = presets()[PresetName.VLLM].requests
        assert requests, "vLLM counts its requests"
        query = selector({NAME: requests.metric, **self._labels(version)})
        answer = await call_in_thread(self._client.query, query, datetime.now(UTC))
        counts: dict[str, float] = {}
        for series in answer.series:
            if series.value and fits(series.metric, requests.match):
                pod = series.metric.get(POD, "")
                counts[pod] = counts.get(pod, 0.0) + series.value[1]
        return counts


async def is_scraped(at: PrometheusEndpoint, labels: Mapping[str, str]) -> bool:
    """Whether Prometheus scrapes anything with these labels.

    Raises:
        OutsideError: it does not answer, or refuses.
    """
    client = PrometheusClient(at, timeout_seconds=TIMEOUT_SECONDS)
    answer = await call_in_thread(client.query, selector({NAME: UP, **labels}), datetime.now(UTC))
    return bool(answer.series)
