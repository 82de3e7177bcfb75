"""Judges lines of evidence one after the other: one line of verdicts for each, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from gates.evidence.batch import Batch
from gates.json_lines import line_problems
from gates.model import GateOutcome, GateVerdict, OutcomeName, Verdict, worst
from gates.sequential_test import AnalysisPlan, SequentialTest
from tidegate.core.errors import ExitCode, UsageError
from tidegate.core.model import Value
from tidegate.core.spec import Problem, SpecError

EXIT_CODES: Mapping[GateOutcome, ExitCode] = {
    GateOutcome.PASS: ExitCode.DELIVERED,
    GateOutcome.FAIL: ExitCode.ROLLED_BACK,
    GateOutcome.RUNNING: ExitCode.INCONCLUSIVE,
    GateOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    GateOutcome.ERROR: ExitCode.OUTSIDE,
}
"""How a command ends that ends with this outcome."""


class WrongField(Value):
    """What is wrong with a line of evidence."""

    line: int
    """Of the input, from 1."""
    field: str
    """As `arms[0].ttft[7]`; empty for the line as a whole."""
    found: str
    expected: str


class VerdictLine(Value):
    """One line of output."""

    time: float | None = None
    """Of the batch, in Unix seconds; null when the line was none."""
    batch: Annotated[int, Field(ge=0)]
    """How many batches have been learnt from."""
    outcome: OutcomeName
    """The worst of all gates; `error` when the line could not be read, and then it taught nothing."""
    verdicts: tuple[GateVerdict, ...] = ()
    problems: tuple[WrongField, ...] = ()
    """Of a line that could not be read."""

    def written(self) -> str:
        """As one line of JSON, without its end."""
        return self.model_dump_json(exclude=None if self.problems else {"problems"})


def as_lines(verdicts: Iterable[Verdict]) -> tuple[GateVerdict, ...]:
    """Verdicts as they are told to other programs."""
    return tuple(GateVerdict(**verdict.model_dump(include=set(GateVerdict.model_fields))) for verdict in verdicts)


def as_wrong(problem: Problem) -> WrongField:
    """A problem as it is told to other programs."""
    return WrongField(line=problem.line, field=problem.path, found=problem.found, expected=problem.expected)


MOST_PROBLEMS = 10
"""Told of one line."""


class Restart(Value):
    """The line that says that traffic was shared out again: the canary must show again that it is fine."""

    restart: Literal[True]


class VerdictStream:
    """A sequential test that is fed with text."""

    def __init__(self, terms: AnalysisPlan, *, file: str = "stdin") -> None:
        """`file` is the input's name in problems."""
        self.lines = 0
        """Read, blank ones included."""
        self.batches = 0
        """Learnt from."""
        self.unasked: set[str] = set()
        """Sources of batches whose word no gate asks for."""
        self.file = file
        self._trial = SequentialTest(terms)
        self._asked = {source for gate in terms.gates for source in terms.sources_of(gate)}
        self._last_was_read = True

    def answer(self, line: bytes) -> VerdictLine | None:
        """Learn from one line; None for a blank one."""
        self.lines += 1
        if not line.strip():
            return None
        try:
            time = self._learn(line)
        except SpecError as error:
            self._last_was_read = False
            wrong = tuple(as_wrong(problem) for problem in error.problems[:MOST_PROBLEMS])
            return VerdictLine(batch=self.batches, outcome=GateOutcome.ERROR, problems=wrong)
        self._last_was_read = True
        verdicts = self._trial.verdicts()
        outcome = worst(verdict.outcome for verdict in verdicts)
        return VerdictLine(time=time, batch=self.batches, outcome=outcome, verdicts=as_lines(verdicts))

    def take(self, batch: Batch) -> None:
        """Learn from a batch that did not come as text.

        Raises:
            UsageError: as `SequentialTest.take`.
        """
        self._trial.take(batch)
        self.batches += 1
        if batch.source not in self._asked:
            self.unasked.add(batch.source)

    def final(self) -> VerdictLine:
        """What holds at the end of the evidence: what is still running is inconclusive.

        A last line that could not be read may have held anything, so that nothing passes then.
        """
        verdicts = self._trial.verdicts(deadline_passed=True)
        last = GateOutcome.PASS if self._last_was_read else GateOutcome.ERROR
        outcome = worst([last, *(verdict.outcome for verdict in verdicts)])
        return VerdictLine(batch=self.batches, outcome=outcome, verdicts=as_lines(verdicts))

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
