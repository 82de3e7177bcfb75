"""The drift gate within a trial: counts in frozen bins, batch by batch."""

from __future__ import annotations

from gates.drift import GATE, judge_drift
from gates.drift_bins import Reference
from gates.drift_evidence import DriftEvidence
from gates.drift_spec import DriftGate
from gates.evidence import Batch
from gates.model import NoData, Verdict


class DriftWatch:
    """Adds up what batches count, and judges it when asked."""

    gate = GATE

    def __init__(self, settings: DriftGate, reference: Reference | NoData, *, rollback: float) -> None:
        """`reference` was frozen with the terms; `rollback` is the gate's share of the chance of a false alarm."""
        self._settings, self._rollback = settings, rollback
        self._evidence = DriftEvidence(reference)

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
