"""The sequential test: one canary next to one stable, judged after every batch of evidence until there is a verdict.

It fails when the weighted mean of the evidence that something is worse reaches 1 / rollback: the mean of
e-processes is an e-process, so the budget holds for all tests and polls together. A gate passes when
each of its tests has shown with evidence 1 / accept that the canary is within its margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gates.analyses.base import MetricTest, as_odds, as_ratio
from gates.analysis_plan import Allocation, AnalysisPlan, metric_tests, monitors
from gates.evidence.batch import Batch
from gates.model import GateOutcome, Verdict
from tidegate.core.errors import UsageError


class _Standing:
    """A metric test and what it has shown so far."""

    def __init__(self, asked: Allocation, test: MetricTest) -> None:
        self.asked, self.test = asked, test
        self.log_best = -math.inf
        """The clearest evidence since the last restart that the canary is fine."""

    def poll(self) -> None:
        self.log_best = max(self.log_best, self.test.log_fine)

    def restart(self) -> None:
        self.test.restart()
        self.log_best = -math.inf

    @property
    def log_share(self) -> float:
        """What it adds to the test's evidence that something is worse."""
        weight = self.asked.weight
        return math.log(weight) + self.test.log_worse if weight else -math.inf

    def fine(self, log_needed: float) -> bool:
        """Whether it has shown that the canary is fine, and nothing since has taken that back."""
        shown = self.log_best >= log_needed and self.test.log_fine >= 0
        return shown and self.test.seen >= self.test.needed


class SequentialTest:
    """Takes batches, answers verdicts; the same batches always give the same verdicts."""

    def __init__(self, plan: AnalysisPlan) -> None:
        """`plan` must not have been chosen with the evidence in sight."""
        self.plan = plan
        self._standings = [_Standing(asked, test) for asked, test in metric_tests(plan)]
        self._monitors = list(monitors(plan))
        self._times: dict[str, float] = {}
        self._failed: Verdict | None = None

    def take(self, batch: Batch) -> None:
        """Learn from one batch.

        Raises:
            UsageError: when it is not later than the last batch of its source, or counts in other bins than the
                plan; nothing was learnt then.
        """
        last = self._times.get(batch.source)
        if last is not None and batch.time <= last:
            raise UsageError(f"a batch at {batch.time:.3f} came after one at {last:.3f} from the same source")
        for _, monitor in self._monitors:
            monitor.refuse(batch)
        self._times[batch.source] = batch.time
        seconds = 0.0 if last is None else batch.time - last
        for standing in self._standings:
            if standing.asked.source == batch.source:
                standing.test.take(batch, seconds)
                standing.poll()
        for gate, monitor in self._monitors:
            if batch.source in self.plan.sources_of(gate):
                monitor.take(batch, seconds)
        if self._failed is None and self.log_worse >= -math.log(self.plan.rollback):
            culprit = max(self._standings, key=lambda standing: standing.log_share)
            self._failed = self._verdict(culprit, GateOutcome.FAIL)

    def restart(self) -> None:
        """Traffic is shared out again: whether the canary is fine must be shown again, at the new weight."""
        for standing in self._standings:
            standing.restart()
        for _, monitor in self._monitors:
            monitor.restart()

    @property
    def log_worse(self) -> float:
        """Natural logarithm of the evidence that anything is worse, over all tests."""
        return float(np.logaddexp.reduce([standing.log_share for standing in self._standings] or [-math.inf]))

    def verdicts(self, *, deadline_passed: bool = False) -> tuple[Verdict, ...]:
        """One for each gate, in the order of the plan. A gate that has failed stays so."""
        return tuple(self._of_gate(gate, deadline_passed=deadline_passed) for gate in self.plan.gates)

    def _of_gate(self, gate: str, *, deadline_passed: bool) -> Verdict:
        if self._failed and self._failed.gate == gate:
            return self._failed
        for name, monitor in self._monitors:
            if name == gate:
                return monitor.verdict(deadline_passed=deadline_passed)
        mine = [standing for standing in self._standings if standing.asked.gate == gate]
        open_ones = [standing for standing in mine if not standing.fine(self._log_needed)]
        if not open_ones:
            # The test that was hardest to pass says how sure the whole is.
            return self._verdict(min(mine, key=lambda standing: standing.test.log_fine), GateOutcome.PASS)
        outcome = GateOutcome.INCONCLUSIVE if deadline_passed else GateOutcome.RUNNING
        return self._verdict(_furthest(open_ones), outcome)

    @property
    def _log_needed(self) -> float:
        return -math.log(self.plan.accept)

    def _verdict(self, standing: _Standing, outcome: GateOutcome) -> Verdict:
        test, asked = standing.test, standing.asked
        numbers = dict(test.numbers())
        if asked.weight:
            # What a fail needs of this test alone: its share of the budget is its weight.
            needed = -math.log(self.plan.rollback * asked.weight)
            numbers |= {"evidence_worse": as_ratio(test.log_worse), "evidence_worse_needed": as_ratio(needed)}
        numbers |= {"evidence_fine": as_ratio(test.log_fine), "evidence_fine_needed": as_ratio(self._log_needed)}
        auxiliary = {name: value for name, value in self._auxiliary(asked).items() if name not in numbers}
        words = self._words(standing, outcome)
        return Verdict(gate=asked.gate, outcome=outcome, reason=words, numbers=numbers, auxiliary=auxiliary)

    def _auxiliary(self, asked: Allocation) -> dict[str, float]:
        """What every test of the gate knows from the same source; other sources use the same names."""
        numbers: dict[str, float] = {}
        for each in self._standings:
            if (each.asked.gate, each.asked.source) == (asked.gate, asked.source):
                numbers |= each.test.numbers()
                numbers |= each.test.auxiliary()
        return numbers

    def _words(self, standing: _Standing, outcome: GateOutcome) -> str:
        test = standing.test
        seen = f"after {test.seen:,} {test.sample}"
        described = test.describe()
        if not test.seen:
            return described
        if outcome is GateOutcome.FAIL:
            return f"{described}: evidence {as_odds(test.log_worse)} {test.worse}, {seen}"
        if outcome is GateOutcome.PASS:
            return f"{described}: evidence {as_odds(standing.log_best)} {test.fine}, {seen}"
        if standing.log_best >= self._log_needed and test.seen < test.needed:
            return f"{described}: {test.seen:,} seen, {test.needed:,} are asked for"
        needed = f"{1 / self.plan.accept:,.0f}:1 needed"
        return f"{described}: evidence {as_odds(test.log_fine)} {test.fine} ({needed}), {seen}"


def _furthest(standings: Sequence[_Standing]) -> _Standing:
    return min(standings, key=lambda standing: standing.test.log_fine)
