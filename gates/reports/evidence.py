"""Judges evidence that comes as lines of JSON: batches, and lines that say that traffic was shared out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError

from gates.evidence.batch import Batch
from gates.json_lines import line_problems
from gates.model import worst
from gates.reports.check_report import CheckReport, as_lines
from gates.sequential_test import AnalysisPlan, SequentialTest
from tidegate.core.errors import UsageError
from tidegate.core.model import Value
from tidegate.core.spec import Problem, SpecError

MOST_PROBLEMS = 10
"""Told of one line."""


class Restart(Value):
    """The line that says that traffic was shared out again: the canary must show again that it is fine."""

    restart: Literal[True]


class JudgedEvidence:
    """A sequential test that is fed with text, or with batches."""

    def __init__(self, terms: AnalysisPlan, *, file: str = "stdin") -> None:
        """`file` is the input's name in problems."""
        self.unasked: set[str] = set()
        """Sources of batches whose word no gate asks for."""
        self._file, self._lines, self._batches = file, 0, 0
        self._since: float | None = None
        self._until: float | None = None
        self._trial = SequentialTest(terms)
        self._asked = {source for gate in terms.gates for source in terms.sources_of(gate)}

    def read(self, line: bytes) -> None:
        """Learn from one line; a blank one is counted alone.

        Raises:
            SpecError: when it is no batch, or later than no other of its source; it taught nothing then.
        """
        self._lines += 1
        if not line.strip():
            return
        try:
            batch = Batch.model_validate_json(line, strict=True)
        except ValidationError as error:
            if not _is_restart(line):
                raise SpecError(line_problems(self._file, self._lines, error)[:MOST_PROBLEMS]) from error
            self._trial.restart()
            return
        try:
            self.take(batch)
        except UsageError as error:
            expected = "batches of one source that rise in time"
            raise SpecError([Problem(self._file, self._lines, "time", error.message, expected)]) from error

    def take(self, batch: Batch) -> None:
        """Learn from a batch that did not come as text.

        Raises:
            UsageError: as `SequentialTest.take`.
        """
        self._trial.take(batch)
        self._batches += 1
        self._since, self._until = batch.time if self._since is None else self._since, batch.time
        if batch.source not in self._asked:
            self.unasked.add(batch.source)

    def report(self, name: str, *, not_asked: Sequence[str] = ()) -> CheckReport:
        """What holds at the end of the evidence: what is still running is inconclusive."""
        verdicts = self._trial.verdicts(deadline_passed=True)
        return CheckReport(
            name=name,
            outcome=worst(verdict.outcome for verdict in verdicts),
            batches=self._batches,
            since=self._since,
            until=self._until,
            verdicts=as_lines(verdicts),
            not_asked=tuple(not_asked),
        )


def _is_restart(line: bytes) -> bool:
    try:
        Restart.model_validate_json(line, strict=True)
    except ValidationError:
        return False
    return True
