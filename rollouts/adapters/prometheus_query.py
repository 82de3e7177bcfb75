"""Instant queries to a region's own Prometheus."""

from __future__ import annotations

from tidegate.core.access import PrometheusEndpoint
from tidegate.core.adapters.prometheus import PrometheusClient
from tidegate.core.threads import call_in_thread

TIMEOUT_SECONDS = 10.0
"""A query over days of a large region's series takes seconds."""


class PrometheusQuery:
    """A Prometheus that the doctor asks."""

    def __init__(self, at: str | PrometheusEndpoint) -> None:
        """`at` is Prometheus' own address, with a path where it is behind one; nothing is asked yet."""
        self._client = PrometheusClient(at, timeout_seconds=TIMEOUT_SECONDS)

    async def ask(self, query: str) -> tuple[float, ...]:
        """The samples of a query now: of a scalar its value, of a range the last of each series."""
        answer = await call_in_thread(self._client.query, query)
        if answer.scalar is not None:
            return (answer.scalar[1],)
        last = (series.value or next(reversed(series.values), None) for series in answer.series)
        # A native histogram has no value.
        return tuple(sample[1] for sample in last if sample)
