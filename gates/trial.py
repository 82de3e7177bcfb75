"""A trial: one canary beside one stable, judged after every batch of evidence until there is a verdict.

It fails when the weighted mean of the evidence that something is worse reaches 1 / rollback: the mean of
e-processes is an e-process, so the budget holds for all questions and looks together. A gate passes when
each of its questions has shown with evidence 1 / accept that the canary is within its margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gates.evidence import Batch
from gates.model import Outcome, Verdict
from gates.questions.base import Question, as_odds, as_ratio
from gates.terms import Asked, Terms, questions, watches
from tidegate.core.errors import UsageError


class _Standing:
    """A question and what it has shown so far."""

    def __init__(self, asked: Asked, question: Question) -> None:
        self.asked, self.question = asked, question
        self.log_best = -math.inf
        """The clearest evidence since the last restart that the canary is fine."""

    def look(self) -> None:
        self.log_best = max(self.log_best, self.question.log_fine)

    def restart(self) -> None:
        self.question.restart()
        self.log_best = -math.inf

    @property
    def log_share(self) -> float:
        """What it adds to the trial's evidence that something is worse."""
        weight = self.asked.weight
        return math.log(weight) + self.question.log_worse if weight else -math.inf

    def fine(self, log_needed: float) -> bool:
        """Whether it has shown that the canary is fine, and nothing since has taken that back."""
        shown = self.log_best >= log_needed and self.question.log_fine >= 0
        return shown and self.question.seen >= self.question.needed


class Trial:
    """Takes batches, answers verdicts; the same batches always give the same verdicts."""

    def __init__(self, terms: Terms) -> None:
        """`terms` must not have been chosen with the evidence in sight."""
        self.terms = terms
        self._standings = [_Standing(asked, question) for asked, question in questions(terms)]
        self._watches = list(watches(terms))
        self._times: dict[str, float] = {}
        self._failed: Verdict | None = None

    def take(self, batch: Batch) -> None:
        """Learn from one batch.

        Raises:
            UsageError: when it is not later than the last batch of its source, or counts in other bins than the
                terms; nothing was learnt then.
        """
        last = self._times.get(batch.source)
        if last is not None and batch.time <= last:
            raise UsageError(f"a batch at {batch.time:.3f} came after one at {last:.3f} from the same source")
        for _, watch in self._watches:
            watch.refuse(batch)
        self._times[batch.source] = batch.time
        seconds = 0.0 if last is None else batch.time - last
        for standing in self._standings:
            if standing.asked.source == batch.source:
                standing.question.take(batch, seconds)
                standing.look()
        for sources, watch in self._watches:
            if batch.source in sources:
                watch.take(batch, seconds)
        if self._failed is None and self.log_worse >= -math.log(self.terms.rollback):
            culprit = max(self._standings, key=lambda standing: standing.log_share)
            self._failed = self._verdict(culprit, Outcome.FAIL)

    def restart(self) -> None:
        """Traffic is shared out anew: whether the canary is fine must be shown again, at the new weight."""
        for standing in self._standings:
            standing.restart()
        for _, watch in self._watches:
            watch.restart()

    @property
    def log_worse(self) -> float:
        """Natural logarithm of the evidence that anything is worse, over all questions."""
        return float(np.logaddexp.reduce([standing.log_share for standing in self._standings] or [-math.inf]))

    def verdicts(self, *, deadline_passed: bool = False) -> tuple[Verdict, ...]:
        """One for each gate, in the order of the terms. A gate that has failed stays so."""
        return tuple(self._of_gate(gate, deadline_passed=deadline_passed) for gate in self.terms.gates)

    def _of_gate(self, gate: str, *, deadline_passed: bool) -> Verdict:
        if self._failed and self._failed.gate == gate:
            return self._failed
        for _, watch in self._watches:
            if watch.gate == gate:
                return watch.verdict(deadline_passed=deadline_passed)
        mine = [standing for standing in self._standings if standing.asked.gate == gate]
        open_ones = [standing for standing in mine if not standing.fine(self._log_needed)]
        if not open_ones:
            # The question that was hardest to answer says how sure the whole is.
            return self._verdict(min(mine, key=lambda standing: standing.question.log_fine), Outcome.PASS)
        outcome = Outcome.INCONCLUSIVE if deadline_passed else Outcome.RUNNING
        return self._verdict(_furthest(open_ones), outcome)

    @property
    def _log_needed(self) -> float:
        return -math.log(self.terms.accept)

    def _verdict(self, standing: _Standing, outcome: Outcome) -> Verdict:
        question, asked = standing.question, standing.asked
        numbers = dict(question.numbers())
        if asked.weight:
            # What a fail needs of this question alone: its share of the budget is its weight.
            needed = -math.log(self.terms.rollback * asked.weight)
            numbers |= {"evidence_worse": as_ratio(question.log_worse), "evidence_worse_needed": as_ratio(needed)}
        numbers |= {"evidence_fine": as_ratio(question.log_fine), "evidence_fine_needed": as_ratio(self._log_needed)}
        beside = {name: value for name, value in self._beside(asked).items() if name not in numbers}
        words = self._words(standing, outcome)
        return Verdict(gate=asked.gate, outcome=outcome, reason=words, numbers=numbers, beside=beside)

    def _beside(self, asked: Asked) -> dict[str, float]:
        """What every question of the gate knows from the same source; other sources use the same names."""
        numbers: dict[str, float] = {}
        for each in self._standings:
            if (each.asked.gate, each.asked.source) == (asked.gate, asked.source):
                numbers |= each.question.numbers()
                numbers |= each.question.beside()
        return numbers

    def _words(self, standing: _Standing, outcome: Outcome) -> str:
        question = standing.question
        seen = f"after {question.seen:,} {question.sample}"
        described = question.describe()
        if not question.seen:
            return described
        if outcome is Outcome.FAIL:
            return f"{described}: evidence {as_odds(question.log_worse)} {question.worse}, {seen}"
        if outcome is Outcome.PASS:
            return f"{described}: evidence {as_odds(standing.log_best)} {question.fine}, {seen}"
        if standing.log_best >= self._log_needed and question.seen < question.needed:
            return f"{described}: {question.seen:,} seen, {question.needed:,} are asked for"
        needed = f"{1 / self.terms.accept:,.0f}:1 needed"
        return f"{described}: evidence {as_odds(question.log_fine)} {question.fine} ({needed}), {seen}"


def _furthest(standings: Sequence[_Standing]) -> _Standing:
    return min(standings, key=lambda standing: standing.question.log_fine)
