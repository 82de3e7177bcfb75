"""Evidence sources that add to the batches of another: an SLO's events, features of questions and answers."""

from __future__ import annotations

from datetime import datetime, timedelta

from gates.burn.spec import BurnRateGate
from gates.drift.bins import Reference, count_records
from gates.evidence import Batch
from gates.model import ArmKey, NoData
from gates.ports import EventSource, EvidenceSource, UserRequests


class WithEvents:
    """Asks an SLO's queries about the canary over the same window."""

    def __init__(self, source: EvidenceSource, events: EventSource, gate: BurnRateGate) -> None:
        """`gate` has the queries."""
        self._source, self._events, self._gate = source, events, gate

    @property
    def settles_within(self) -> timedelta:
        """As the source below."""
        return self._source.settles_within

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As the source below; without an answer to the queries, the reason is among what is missing."""
        batch = self._source.batch(stable, canary, since, until)
        events = self._events.events(self._gate, canary, since, until)
        if isinstance(events, NoData):
            return batch.model_copy(update={"missing": {**batch.missing, "events": events.reason}})
        return batch.model_copy(update={"events": events})


class WithDrift:
    """Counts what users of each arm asked and got, in bins that were frozen before."""

    def __init__(self, source: EvidenceSource, requests: UserRequests, reference: Reference) -> None:
        """`requests` are those of the users whose evidence `source` is."""
        self._source, self._requests, self._reference = source, requests, reference

    @property
    def settles_within(self) -> timedelta:
        """As the source below."""
        return self._source.settles_within

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As the source below."""
        batch = self._source.batch(stable, canary, since, until)
        arms = [self._requests.window(arm, since, until) for arm in (stable, canary)]
        return batch.model_copy(update={"drift": count_records(self._reference, *arms)})
