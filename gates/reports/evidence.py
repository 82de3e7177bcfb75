"""Judges evidence that comes as lines of JSON: batches, and lines that say that traffic was shared out again."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from gates.evidence.batch import Batch, Source
from gates.json_lines import line_problems
from gates.model import worst
from gates.reports.check_report import CheckReport
from gates.sequential_test import AnalysisPlan, SequentialTest
from tidegate.core.errors import UsageError
from tidegate.core.spec import Problem, SpecError

MOST_PROBLEMS = 10
"""Told of one line."""
STDIN = Path("-")
RESTART = re.compile(rb'\s*\{\s*"restart"\s*:\s*true\s*\}\s*')
"""The line that says that traffic was shared out again: the canary must show again that it is fine."""


def judge_evidence(
    plan: AnalysisPlan, lines: Iterable[bytes], *, name: str, file: str = "stdin", not_asked: Sequence[str] = ()
) -> tuple[CheckReport, set[Source]]:
    """What holds at the end of the evidence, and sources of batches whose word no gate asks for.

    Args:
        plan: what is judged.
        lines: batches, and restarts; blank ones are counted alone.
        name: of the report.
        file: of the lines, in problems.
        not_asked: gates that no batch answers.

    Raises:
        SpecError: with every line that is no batch, or later than no other of its source: evidence has to be whole.
    """
    test, wrong, batches = SequentialTest(plan), list[Problem](), list[Batch]()
    for at, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if RESTART.fullmatch(line):
            test.restart()
            continue
        try:
            batch = Batch.model_validate_json(line, strict=True)
            test.take(batch)
        except ValidationError as error:
            wrong += line_problems(file, at, error)[:MOST_PROBLEMS]
        except UsageError as error:
            wrong.append(Problem(file, at, "time", error.message, "batches of one source that rise in time"))
        else:
            batches.append(Batch(time=batch.time, source=batch.source))
    if wrong:
        raise SpecError(wrong)
    verdicts = test.verdicts(deadline_passed=True)
    report = CheckReport(
        name=name,
        outcome=worst(verdict.outcome for verdict in verdicts),
        batches=len(batches),
        since=batches[0].time if batches else None,
        until=batches[-1].time if batches else None,
        verdicts=verdicts,
        not_asked=tuple(not_asked),
    )
    asked = {source for gate in plan.gates for source in plan.sources_of(gate)}
    return report, {batch.source for batch in batches} - asked


def lines_in(file: Path) -> Iterator[bytes]:
    """Those of a file; `-` is stdin.

    Raises:
        SpecError: it cannot be read.
    """
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
