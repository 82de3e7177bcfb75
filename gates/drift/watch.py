"""The drift gate within a trial: counts in frozen bins, batch by batch."""

from __future__ import annotations

from gates.drift.bins import Reference
from gates.drift.evidence import DriftEvidence
from gates.drift.judge import GATE, judge_drift
from gates.drift.spec import DriftGate
from gates.evidence import Batch
from gates.model import NoData, Verdict
from tidegate.core.errors import UsageError


class DriftWatch:
    """Adds up what batches count, and judges it when asked."""

    gate = GATE

    def __init__(self, settings: DriftGate, reference: Reference | NoData, *, rollback: float) -> None:
        """`reference` was frozen with the terms; `rollback` is the gate's share of the chance of a false alarm."""
        self._settings, self._rollback = settings, rollback
        self._evidence = DriftEvidence(reference)

    def refuse(self, batch: Batch) -> None:
        """Counts must lie in the frozen bins.

        Raises:
            UsageError: when a feature has another number of bins than the reference.
        """
        if batch.drift is None or isinstance(self._evidence.reference, NoData):
            return
        for feature, bins in self._evidence.reference.bins.items():
            for arm in (batch.drift.stable, batch.drift.canary):
                found = len(arm.get(feature, bins.reference))
                if found != len(bins.reference):
                    raise UsageError(
                        f"a batch counts {feature} in {found} bins; the reference has {len(bins.reference)}"
                    )

    def take(self, batch: Batch, seconds: float) -> None:
        """A batch without counts in bins says nothing of drift."""
        _ = seconds
        if batch.drift is not None:
            self._evidence = self._evidence.plus(self._settings, batch.drift)

    def restart(self) -> None:
        """What was seen at another weight is about the same answers: it stays."""

    def verdict(self, *, deadline_passed: bool) -> Verdict:
        """Of all batches so far."""
        return judge_drift(self._settings, self._evidence, alpha=self._rollback, deadline_passed=deadline_passed)
