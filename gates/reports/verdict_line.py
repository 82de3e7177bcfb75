"""One line of verdicts: what a judge answers to one line of evidence, and what a caller's exit code means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field, PlainSerializer, WithJsonSchema

from gates.model import Outcome, Verdict
from tidegate.core.errors import ExitCode
from tidegate.core.model import Value
from tidegate.core.spec import Problem

OutcomeName = Annotated[
    Outcome, PlainSerializer(str, return_type=str), WithJsonSchema({"enum": [str(outcome) for outcome in Outcome]})
]
"""An outcome by its name."""

EXIT_CODES: Mapping[Outcome, ExitCode] = {
    Outcome.PASS: ExitCode.DELIVERED,
    Outcome.FAIL: ExitCode.ROLLED_BACK,
    Outcome.RUNNING: ExitCode.INCONCLUSIVE,
    Outcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Outcome.ERROR: ExitCode.OUTSIDE,
}
"""How a command ends that ends with this outcome."""


class GateVerdict(Value):
    """One gate's answer."""

    gate: str
    outcome: OutcomeName
    reason: str
    """One sentence a person understands."""
    numbers: Mapping[str, float] = {}
    """What the sentence rests on; names carry their unit."""


class WrongField(Value):
    """What is wrong with a line of evidence."""

    line: int
    """Of the input, from 1."""
    field: str
    """As `arms[0].ttft[7]`; empty for the line as a whole."""
    found: str
    expected: str


class Answer(Value):
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
