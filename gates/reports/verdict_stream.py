"""Judges lines of evidence one after the other: one answer for each, whatever it holds."""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationError

from gates.evidence import Batch
from gates.json_lines import line_problems
from gates.model import Outcome, worst
from gates.reports.verdict_line import Answer, as_lines, as_wrong
from gates.terms import Terms
from gates.trial import Trial
from tidegate.core.errors import UsageError
from tidegate.core.model import Value
from tidegate.core.spec import Problem, SpecError

MOST_PROBLEMS = 10
"""Told of one line."""


class Restart(Value):
    """The line that says that traffic was shared out anew: the canary must show again that it is fine."""

    restart: Literal[True]


class VerdictStream:
    """A trial that is fed with text."""

    def __init__(self, terms: Terms, *, file: str = "stdin") -> None:
        """`file` is the input's name in problems."""
        self.lines = 0
        """Read, blank ones included."""
        self.batches = 0
        """Learnt from."""
        self.unasked: set[str] = set()
        """Sources of batches whose word no gate asks for."""
        self.file = file
        self._trial = Trial(terms)
        self._asked = {source for gate in terms.gates for source in terms.sources_of(gate)}
        self._last_was_read = True

    def answer(self, line: bytes) -> Answer | None:
        """Learn from one line; None for a blank one."""
        self.lines += 1
        if not line.strip():
            return None
        try:
            time = self._learn(line)
        except SpecError as error:
            self._last_was_read = False
            wrong = tuple(as_wrong(problem) for problem in error.problems[:MOST_PROBLEMS])
            return Answer(batch=self.batches, outcome=Outcome.ERROR, problems=wrong)
        self._last_was_read = True
        verdicts = self._trial.verdicts()
        outcome = worst(verdict.outcome for verdict in verdicts)
        return Answer(time=time, batch=self.batches, outcome=outcome, verdicts=as_lines(verdicts))

    def take(self, batch: Batch) -> None:
        """Learn from a batch that did not come as text.

        Raises:
            UsageError: as `Trial.take`.
        """
        self._trial.take(batch)
        self.batches += 1
        if batch.source not in self._asked:
            self.unasked.add(batch.source)

    def final(self) -> Answer:
        """What holds at the end of the evidence: what is still running is inconclusive.

        A last line that could not be read may have held anything, so that nothing passes then.
        """
        verdicts = self._trial.verdicts(deadline_passed=True)
        last = Outcome.PASS if self._last_was_read else Outcome.ERROR
        outcome = worst([last, *(verdict.outcome for verdict in verdicts)])
        return Answer(batch=self.batches, outcome=outcome, verdicts=as_lines(verdicts))

    def _learn(self, line: bytes) -> float | None:
        """The time of the batch that was learnt; None when it was a restart."""
        try:
            batch = Batch.model_validate_json(line, strict=True)
        except ValidationError as error:
            if not _is_restart(line):
                raise SpecError(line_problems(self.file, self.lines, error)) from error
            self._trial.restart()
            return None
        try:
            self.take(batch)
        except UsageError as error:
            expected = "batches of one source that rise in time"
            raise SpecError([Problem(self.file, self.lines, "time", error.message, expected)]) from error
        return batch.time


def _is_restart(line: bytes) -> bool:
    try:
        Restart.model_validate_json(line, strict=True)
    except ValidationError:
        return False
    return True
