"""What the gate adds to vLLM's own /metrics.

vLLM counts a client that left, and an error within a stream, as requests that went well.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from .answers import OUTCOMES


class Counts:
    """`tidegate_requests_total{outcome}` and `tidegate_open_requests`."""

    def __init__(self, open_now: Callable[[], int], registry: CollectorRegistry = REGISTRY) -> None:
        """`open_now` tells how many answers are open."""
        self._requests = Counter(
            "tidegate_requests",
            "Requests of users by how their answers ended, as the engine saw it.",
            ["outcome"],
            registry=registry,
        )
        # Series that exist from the start: an alert on a rate needs the zero before the first error.
        for outcome in OUTCOMES:
            self._requests.labels(outcome)
        Gauge("tidegate_open_requests", "Answers that are open now.", registry=registry).set_function(open_now)

    def add(self, outcome: str) -> None:
        """One more answer ended so."""
        self._requests.labels(outcome).inc()
