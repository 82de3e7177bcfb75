"""What a gate needs from the world: what the arms of a region did in a window of time."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from gates.distribution import Distribution
from gates.model import ArmKey, Counts, NoData
from gates.spec import LatencyMetric


class MetricSource(Protocol):
    """Where evidence comes from. Every call may raise `OutsideError` when the source is not there."""

    def requests(self, arm: ArmKey, since: datetime, until: datetime) -> Counts | NoData:
        """The requests of that arm that ended in the window."""
        ...

    def latencies(self, metric: LatencyMetric, arm: ArmKey, since: datetime, until: datetime) -> Distribution | NoData:
        """How long they took; those that failed have no latency and are missing here."""
        ...
