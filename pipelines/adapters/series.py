"""Series of engines: how many requests each has answered, and whether there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from gates.evidence.names import NAME, POD, selector
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.adapters.prometheus import PrometheusClient, SeriesAnswer
from tidegate.core.metrics import PresetName, fits, presets
from tidegate.core.threads import call_in_thread

TIMEOUT_SECONDS = 5


class ServedByPrometheus:
    """A `RequestCounter`: what engines themselves counted, copies and probes included."""

    def __init__(self, at: str | PrometheusEndpoint, labels: Callable[[str], Mapping[str, str]]) -> None:
        """`at` is Prometheus' own address, `labels` those of a version's series; nothing is asked yet."""
        self._at, self._labels = at, labels

    async def served(self, version: str) -> Mapping[str, float]:
        requests = presets()[PresetName.VLLM].requests
        assert requests, "vLLM counts its requests"
        counts: dict[str, float] = {}
        for series in await found_now(self._at, {NAME: requests.metric, **self._labels(version)}):
            if series.value and fits(series.metric, requests.match):
                pod = series.metric.get(POD, "")
                counts[pod] = counts.get(pod, 0.0) + series.value[1]
        return counts


async def found_now(at: str | PrometheusEndpoint, labels: Mapping[str, str]) -> Sequence[SeriesAnswer]:
    """The series with these labels.

    Raises:
        OutsideError: Prometheus does not answer, or refuses.
    """
    client = PrometheusClient(at, timeout_seconds=TIMEOUT_SECONDS)
    return (await call_in_thread(client.query, selector(labels), datetime.now(UTC))).series
