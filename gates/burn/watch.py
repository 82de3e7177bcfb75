"""The burn rate gate within a trial: events of the SLO, batch by batch."""

from __future__ import annotations

from gates.burn.burn_rate import GATE, Burn, events_of, slow_events_of
from gates.burn.evidence import Events, Look
from gates.burn.spec import BurnRateGate
from gates.evidence import Arm, Batch
from gates.model import NoData, Verdict


class BurnWatch:
    """Hands each batch's events to the burn's statistics: requests, their times, or what the SLO's queries counted."""

    gate = GATE

    def __init__(self, settings: BurnRateGate, *, rollback: float, accept: float) -> None:
        """Its shares of the chances of a false alarm and of a false pass."""
        self._burn = Burn(settings, rollback=rollback, accept=accept)
        self._settings = settings

    def refuse(self, batch: Batch) -> None:
        """Every batch fits."""

    def take(self, batch: Batch, seconds: float) -> None:
        """Learn from one batch."""
        self._burn.take(Look(time=batch.time, seconds=seconds, events=self._events(batch)))

    def _events(self, batch: Batch) -> Events | NoData:
        if self._settings.slower:
            return slow_events_of(batch, Arm.CANARY, self._settings.slower)
        if self._settings.errors_query:
            return batch.events or NoData(reason=batch.missing.get("events", "the SLO's queries were not asked"))
        return events_of(batch, Arm.CANARY)

    def restart(self) -> None:
        """An error budget does not care at which weight it was spent."""

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """Of all batches so far."""
        return self._burn.verdict(deadline_passed=deadline_passed)
