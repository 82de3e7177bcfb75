"""Evidence in memory: each version in its role has a steady load."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from gates.evidence.batch import ArmName, Batch, PodEvidence
from gates.model import ArmKey
from tidegate.core.errors import OutsideError

SPREAD = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.6)
"""Of times around their middle: no engine takes equally long twice."""

SCRAPE_SECONDS = 10


@dataclass(frozen=True)
class Load:
    """What an arm does."""

    per_second: float
    failed: float
    ttft: float
    since: datetime | None = None
    until: datetime | None = None

    def lasts(self, at: datetime) -> bool:
        """Whether it is there at that time."""
        return (self.since is None or self.since <= at) and (self.until is None or at <= self.until)


class FakeEvidence:
    """An `EvidenceSource`: each version in its role has a steady load, counted in whole requests."""

    settles_within = timedelta(0)

    def __init__(self, source: Literal["proxy", "users"] = "proxy") -> None:
        self._source = source
        self.loads: dict[tuple[str, str], Load] = {}
        self.gone = False
        self.windows: list[tuple[datetime, datetime]] = []
        self.sought = 0
        """How often samples were looked for."""

    def serves(
        self,
        role: str,
        version: str,
        *,
        per_second: float = 20,
        failed: float = 0,
        ttft: float = 0.1,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> None:
        """That arm has so many requests a second, that share failed, times around that one; always, or in that time."""
        self.loads[role, version] = Load(per_second, failed, ttft, since, until)

    def sampled(self, arm: ArmKey, since: datetime, until: datetime) -> list[datetime]:
        """A scrape each ten seconds."""
        if self.gone:
            raise OutsideError("Prometheus is not there")
        self.sought += 1
        load = self.loads.get((arm.role, arm.version))
        first = math.floor(since.timestamp() / SCRAPE_SECONDS) + 1
        last = math.floor(until.timestamp() / SCRAPE_SECONDS)
        times = (datetime.fromtimestamp(each * SCRAPE_SECONDS, UTC) for each in range(first, last + 1))
        return [each for each in times if load and load.lasts(each)]

    def selectors(self, arm: ArmKey) -> str:
        return f'{{role="{arm.role}",version="{arm.version}"}}'

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
