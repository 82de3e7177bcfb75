"""Judges evidence that comes as lines of JSON: batches, and lines that say that traffic was shared out again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from gates.evidence.batch import Batch
from gates.json_lines import line_problems
from gates.model import worst
from gates.reports.check_report import CheckReport
from gates.sequential_test import AnalysisPlan, SequentialTest
from tidegate.core.errors import UsageError
from tidegate.core.model import Value
from tidegate.core.spec import Problem, SpecError

MOST_PROBLEMS = 10
"""Told of one line."""
STDIN = Path("-")


class Restart(Value):
    """The line that says that traffic was shared out again: the canary must show again that it is fine."""

    restart: Literal[True]


class JudgedEvidence:
    """A sequential test that is fed with text."""

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
            try:
                Restart.model_validate_json(line, strict=True)
            except ValidationError:
                raise SpecError(line_problems(self._file, self._lines, error)[:MOST_PROBLEMS]) from error
            self._trial.restart()
            return
        try:
            self._trial.take(batch)
        except UsageError as error:
            expected = "batches of one source that rise in time"
            raise SpecError([Problem(self._file, self._lines, "time", error.message, expected)]) from error
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
            verdicts=verdicts,
            not_asked=tuple(not_asked),
        )


def judge_file(terms: AnalysisPlan, file: Path) -> JudgedEvidence:
    """Judge all lines of a file; `-` is stdin.

    Raises:
        SpecError: with every line that is no batch: what CI hands us as a file has to be whole.
    """
    test = JudgedEvidence(terms, file="stdin" if file == STDIN else str(file))
    wrong: list[Problem] = []
    for line in _lines(file):
        try:
            test.read(line)
        except SpecError as error:
            wrong += error.problems
    if wrong:
        raise SpecError(wrong)
    return test


def _lines(file: Path) -> Iterator[bytes]:
    if file == STDIN:
        yield from sys.stdin.buffer
        return
    try:
        with file.open("rb") as lines:
            yield from lines
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        found = "no such file" if missing else (error.strerror or "an unreadable file").lower()
        expected = "a file of batches, one a line"
        raise SpecError([Problem(str(file), 0 if missing else 1, "", found, expected)]) from error
