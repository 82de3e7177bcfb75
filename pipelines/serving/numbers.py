"""The receiver's own numbers for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pipelines.serving.receiver import Outcome, Receiver
from pipelines.serving.reconciler import Reconciler
from registry.triggers.model import State


class Numbers(Collector):
    """Computed only when somebody asks."""

    def __init__(self, receiver: Receiver, reconciler: Reconciler) -> None:
        self._receiver, self._reconciler = receiver, reconciler
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        heard = CounterMetricFamily(
            "tidegate_serve_messages", "Webhook requests by how they ended.", labels=["outcome"]
        )
        for outcome in Outcome:
            heard.add_metric([outcome], self._receiver.heard[outcome])
        yield heard
        standing = self._receiver.inbox.standing(self._receiver.model, self._receiver.alias)
        states = Counter(entry.state for entry in standing)
        wishes = GaugeMetricFamily("tidegate_serve_wishes", "Wishes whose mark stands, by state.", labels=["state"])
        for state in State:
            wishes.add_metric([state], states[state])
        yield wishes
        failures = CounterMetricFamily("tidegate_serve_look_failures", "Looks at the registry that failed.")
        failures.add_metric([], self._reconciler.failures)
        yield failures
        looked = self._reconciler.looked
        yield GaugeMetricFamily(
            "tidegate_serve_look_timestamp_seconds",
            "When the registry was looked at last and all was well; 0 before the first time.",
            looked.timestamp() if looked else 0,
        )
