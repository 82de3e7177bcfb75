"""Evidence of engines of others: their series say a pod template hash, or a name, where a delivery knows versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gates.analyses.burn_rate import BurnRateGate, EventSource
from gates.analyses.queries.asked import QuerySource, Window
from gates.evidence.batch import Batch, Buckets, Events
from gates.model import ArmKey, NoData
from gates.ports import EvidenceSource

KnownAs = Callable[[ArmKey], ArmKey]
"""The same arm with what its series say in place of the version."""


@dataclass(frozen=True)
class BySeries:
    """An `EvidenceSource`, an `EventSource` and a `QuerySource`."""

    evidence: EvidenceSource
    counts: EventSource
    queries: QuerySource
    known_as: KnownAs

    @property
    def settles_within(self) -> timedelta:
        return self.evidence.settles_within

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        return self.evidence.batch(self.known_as(stable), self.known_as(canary), since, until)

    def events(self, gate: BurnRateGate, arm: ArmKey, since: datetime, until: datetime) -> Events | NoData:
        return self.counts.events(gate, self.known_as(arm), since, until)

    def counted(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, int]:
        return self.queries.counted(selector, self.known_as(arm), window)

    def summed(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, float]:
        return self.queries.summed(selector, self.known_as(arm), window)

    def distributed(self, selector: str, arm: ArmKey, window: Window) -> Mapping[str, Buckets]:
        return self.queries.distributed(selector, self.known_as(arm), window)

    def value(self, query: str, arm: ArmKey, window: Window) -> float | NoData:
        return self.queries.value(query, self.known_as(arm), window)
