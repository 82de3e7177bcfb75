"""Evidence in memory: each version in its role has a steady load."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from gates.evidence.batch import ArmName, Batch, PodEvidence
from gates.model import ArmKey
from tidegate.core.errors import OutsideError

SPREAD = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.6)
"""Of times around their middle: no engine takes equally long twice."""


@dataclass(frozen=True)
class Load:
    """What an arm does."""

    per_second: float
    failed: float
    ttft: float


class FakeEvidence:
    """An `EvidenceSource`: each version in its role has a steady load, counted in whole requests."""

    settles_within = timedelta(0)

    def __init__(self, source: Literal["proxy", "users"] = "proxy") -> None:
        self._source = source
        self.loads: dict[tuple[str, str], Load] = {}
        self.gone = False
        self.windows: list[tuple[datetime, datetime]] = []

    def serves(self, role: str, version: str, *, per_second: float = 20, failed: float = 0, ttft: float = 0.1) -> None:
        """From now on that arm has so many requests a second, that share failed, times around that one."""
        self.loads[role, version] = Load(per_second, failed, ttft)

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        if self.gone:
            raise OutsideError("Prometheus is not there")
        self.windows.append((since, until))
        arms = {ArmName.STABLE: stable, ArmName.CANARY: canary}
        pods = tuple(pod for arm, key in arms.items() for pod in self._pods(arm, key, since, until))
        gone = [f"nothing of {key}" for key in arms.values() if (key.role, key.version) not in self.loads]
        lost = dict.fromkeys(("requests", "ttft"), "; ".join(gone)) if gone else {}
        return Batch(time=until.timestamp(), source=self._source, arms=pods, missing=lost)

    def _pods(self, arm: ArmName, key: ArmKey, since: datetime, until: datetime) -> Iterator[PodEvidence]:
        load = self.loads.get((key.role, key.version))
        if load is None:
            return
        first, last = (math.floor(at.timestamp() * load.per_second) for at in (since, until))
        failed = math.floor(last * load.failed) - math.floor(first * load.failed)
        # 7 and 10 have no common factor, so that every window has all of the spread.
        times = tuple(load.ttft * SPREAD[number * 7 % len(SPREAD)] for number in range(first, last - failed))
        yield PodEvidence(arm=arm, requests=last - first, errors=failed, ttft=times, itl=times, e2e=times)
