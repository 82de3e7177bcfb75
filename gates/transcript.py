"""The transcript of a sequential test: its plan, every batch, every restart and every verdict, as lines of JSON.

Anyone who runs a test writes the lines in the order in which things happened. Run again from its plan and
batches, the test must come to the same verdicts, number for number; else what was written is not what
was judged, or it is judged by another method now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from gates.evidence.batch import Batch
from gates.json_lines import line_problems
from gates.model import Verdict
from gates.sequential_test import AnalysisPlan, SequentialTest
from tidegate.core.errors import UsageError
from tidegate.core.model import Value
from tidegate.core.spec import Problem, SpecError


class TermsLine(Value):
    """The first line: the analysis plan. Written before there is any evidence."""

    kind: Literal["terms"] = "terms"
    trial: str
    """As `canary@eu-west-1`."""
    terms: AnalysisPlan


class BatchLine(Value):
    """What the test took."""

    kind: Literal["batch"] = "batch"
    step: str
    """As `canary@eu-west-1/25`."""
    batch: Batch


class RestartLine(Value):
    """Traffic was shared out again; `step` is the one that begins."""

    kind: Literal["restart"] = "restart"
    step: str


class VerdictsLine(Value):
    """What the test said of all batches above."""

    kind: Literal["verdicts"] = "verdicts"
    step: str
    deadline_passed: bool = False
    verdicts: tuple[Verdict, ...]


Line = TermsLine | BatchLine | RestartLine | VerdictsLine

_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def written(line: Line) -> str:
    """The line as one line of JSON, without its end; `read` gives back an equal one."""
    return line.model_dump_json()


def read(texts: Iterable[str], *, file: str) -> Iterator[Line]:
    """The lines of a transcript; `file` is its name in errors. A last line without an end is left out: it was torn.

    Raises:
        SpecError: with the number of the first line that is none.
    """
    for at, text in enumerate(texts, start=1):
        try:
            yield _LINE.validate_json(text.rstrip())
        except ValidationError as error:
            if not text.endswith("\n"):
                return
            raise SpecError(line_problems(file, at, error)) from error


class ReplayDifference(Value):
    """Where a test that is run again does not say what was written."""

    line: int
    """Of the transcript, from 1."""
    step: str
    gate: str
    what: str
    """As `outcome`, `reason`, `numbers.evidence_worse`."""
    recorded: str
    replayed: str

    def __str__(self) -> str:
        where = f"line {self.line}: {self.step}: gate {self.gate}: {self.what}"
        return f"{where}: recorded {self.recorded}, now {self.replayed}"


class Replay:
    """A test run again, line by line."""

    def __init__(self, file: str = "transcript") -> None:
        """`file` is the transcript's name in errors."""
        self._file = file
        self._at = 0
        self._trial: SequentialTest | None = None

    @property
    def trial(self) -> SequentialTest:
        """In the state in which it was after the last line.

        Raises:
            SpecError: when no terms have come yet.
        """
        if self._trial is None:
            raise self._wrong("no terms", "the terms as the first line")
        return self._trial

    def take(self, line: Line) -> list[ReplayDifference]:
        """Do what the line says was done; a line of verdicts is compared.

        Raises:
            SpecError: when the line cannot follow those before it.
        """
        self._at += 1
        if isinstance(line, TermsLine):
            if self._trial is not None:
                raise self._wrong("terms again", "the terms once: nobody changes them on the way")
            self._trial = SequentialTest(line.terms)
        elif isinstance(line, BatchLine):
            # One that is refused was written down before it was judged, refused then as well, and taught nothing.
            with suppress(UsageError):
                self.trial.take(line.batch)
        elif isinstance(line, RestartLine):
            self.trial.restart()
        elif isinstance(line, VerdictsLine):
            return self._compared(line)
        return []

    def _compared(self, line: VerdictsLine) -> list[ReplayDifference]:
        fresh = self.trial.verdicts(deadline_passed=line.deadline_passed)
        return [
            ReplayDifference(line=self._at, step=line.step, gate=gate, what=what, recorded=recorded, replayed=replayed)
            for gate, what, recorded, replayed in _differences(line.verdicts, fresh)
        ]

    def _wrong(self, found: str, expected: str) -> SpecError:
        return SpecError([Problem(self._file, max(self._at, 1), "", found, expected)])


def replay(lines: Iterable[Line], *, file: str = "transcript") -> list[ReplayDifference]:
    """Run the test again; empty when every verdict is the same, bit for bit.

    Raises:
        SpecError: when the lines are not those of one test.
    """
    again = Replay(file)
    found = [difference for line in lines for difference in again.take(line)]
    _ = again.trial  # A file without a line proves nothing, and must not look as if it did.
    return found


def _differences(recorded: Sequence[Verdict], fresh: Sequence[Verdict]) -> Iterator[tuple[str, str, str, str]]:
    """Gate, what, and both values as text: shortest round-trip digits, so equal text means equal bits."""
    for old, new in zip_longest(recorded, fresh):
        if old is None or new is None or old.gate != new.gate:
            yield (old or new).gate, "gate", old.gate if old else "nothing", new.gate if new else "nothing"
            continue
        parts = {"outcome": (str(old.outcome), str(new.outcome)), "reason": (repr(old.reason), repr(new.reason))}
        for name in sorted({*old.numbers, *new.numbers}):
            parts[f"numbers.{name}"] = (_text(old.numbers.get(name)), _text(new.numbers.get(name)))
        yield from ((old.gate, what, was, now) for what, (was, now) in parts.items() if was != now)


def _text(number: float | None) -> str:
    return "nothing" if number is None else repr(number)
