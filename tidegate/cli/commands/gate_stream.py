"""`tidegate gate stream`: evidence on stdin, verdicts on stdout, line by line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

from gates.model import Outcome
from gates.reports.verdict_line import EXIT_CODES, Answer
from gates.reports.verdict_stream import VerdictStream
from tidegate.cli.judged import read_gates
from tidegate.cli.output import note
from tidegate.core.errors import ExitCode

FINAL = (Outcome.PASS, Outcome.FAIL)


def run(gates: Path, *, stop: bool) -> int:
    """Answer until the input ends, or until a final verdict when `stop` is set."""
    stream = VerdictStream(read_gates(gates).terms("users"))
    try:
        _follow(stream, sys.stdin.buffer, sys.stdout.buffer, stop=stop)
    except BrokenPipeError:
        # Nobody listens any more. Python would try to flush at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OUTSIDE
    final = stream.final()
    note(_words(final, stream))
    return EXIT_CODES[final.outcome]


def _follow(stream: VerdictStream, lines: BinaryIO, answers: BinaryIO, *, stop: bool) -> None:
    told: set[str] = set()
    for line in lines:
        answer = stream.answer(line)
        if answer is None:
            continue
        answers.write(answer.written().encode() + b"\n")
        answers.flush()
        for source in sorted(stream.unasked - told):
            note(f"no gate listens to `{source}`; name it under `sources` in a file of kind Gates")
        told |= stream.unasked
        if stop and answer.outcome in FINAL:
            return


def _words(final: Answer, stream: VerdictStream) -> str:
    reasons = [f"{verdict.gate}: {verdict.reason}" for verdict in final.verdicts if verdict.outcome == final.outcome]
    if final.outcome is Outcome.ERROR:
        reasons = [f"line {stream.lines} could not be read"]
    batches = f"{final.batch:,} {'batch' if final.batch == 1 else 'batches'}"
    return f"{final.outcome} after {batches}: {'; '.join(reasons)}"
