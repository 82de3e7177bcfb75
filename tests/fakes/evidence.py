"""Evidence that a test writes down beforehand."""

from __future__ import annotations

from datetime import datetime

from gates.distribution import Distribution
from gates.model import ArmKey, Counts, NoData
from gates.spec import LatencyMetric
from tidegate.core.errors import OutsideError


class FakeEvidence:
    """A `MetricSource`: the same answer for the same role and version, whatever the window."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Counts] = {}
        self.ttft: dict[tuple[str, str], float] = {}
        self.gone = False

    def serves(self, role: str, version: str, *, requests: int, failed: int = 0, ttft: float = 0.1) -> None:
        """From now on that arm has so many requests, so many failed, all with that time to first token."""
        self.counts[role, version] = Counts(total=requests, failed=failed)
        self.ttft[role, version] = ttft

    def requests(self, arm: ArmKey, since: datetime, until: datetime) -> Counts | NoData:
        self._refuse_when_gone()
        return self.counts.get((arm.role, arm.version), NoData(reason=f"nothing of {arm}"))

    def latencies(self, metric: LatencyMetric, arm: ArmKey, since: datetime, until: datetime) -> Distribution | NoData:
        self._refuse_when_gone()
        key = (arm.role, arm.version)
        if key not in self.counts:
            return NoData(reason=f"nothing of {arm}")
        return Distribution.from_samples([self.ttft[key]] * self.counts[key].total)

    def _refuse_when_gone(self) -> None:
        if self.gone:
            raise OutsideError("Prometheus is not there")
