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
"""One line of JSON each, by `model_dump_json`; `read` gives back an equal one."""
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


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


def replay(lines: Iterable[Line], *, file: str = "transcript") -> tuple[SequentialTest, list[str]]:
    """Run the test again, to the state in which it was; and each difference of what it says to what was written.

    There is none when every verdict is the same, bit for bit.

    Raises:
        SpecError: when the lines are not those of one test; `file` is their name.
    """
    test: SequentialTest | None = None
    found: list[str] = []
    at = 1
    for at, line in enumerate(lines, start=1):
        if isinstance(line, TermsLine):
            if test:
                once = "the terms once: nobody changes them on the way"
                raise SpecError([Problem(file, at, "", "terms again", once)])
            test = SequentialTest(line.terms)
        elif test is None:
            break
        elif isinstance(line, BatchLine):
            # One that is refused was written down before it was judged, refused then as well, and taught nothing.
            with suppress(UsageError):
                test.take(line.batch)
        elif isinstance(line, RestartLine):
            test.restart()
        else:
            fresh = test.verdicts(deadline_passed=line.deadline_passed)
            found += [f"line {at}: {line.step}: {each}" for each in _differences(line.verdicts, fresh)]
    # A file without a line proves nothing, and must not look as if it did.
    if test is None:
        raise SpecError([Problem(file, at, "", "no terms", "the terms as the first line")])
    return test, found


def _differences(recorded: Sequence[Verdict], fresh: Sequence[Verdict]) -> Iterator[str]:
    """By gate, with both values as text: shortest round-trip digits, so equal text means equal bits."""
    for old, new in zip_longest(recorded, fresh):
        if old is None or new is None or old.gate != new.gate:
            said, says = (each.gate if each else "nothing" for each in (old, new))
            yield f"gate {(old or new).gate}: gate: recorded {said}, now {says}"
            continue
        parts = {"outcome": (str(old.outcome), str(new.outcome)), "reason": (repr(old.reason), repr(new.reason))}
        for name in sorted({*old.numbers, *new.numbers}):
            was, now = (repr(each.numbers[name]) if name in each.numbers else "nothing" for each in (old, new))
            parts[f"numbers.{name}"] = was, now
        for what, (was, now) in parts.items():
            if was != now:
                yield f"gate {old.gate}: {what}: recorded {was}, now {now}"
