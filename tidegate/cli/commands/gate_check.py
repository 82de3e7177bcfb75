"""`tidegate gate check`: one judgement of evidence that is all there, as a report for CI."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gates.evidence import Batch
from gates.model import ArmKey
from gates.reports.check_report import REPORTS, Judgement
from gates.reports.verdict_line import EXIT_CODES
from gates.reports.verdict_stream import VerdictStream
from gates.terms import Source
from tidegate.cli.ci import Reports, errors_told
from tidegate.cli.judged import Judged, read_gates
from tidegate.cli.output import note
from tidegate.cli.whole_files import write_whole
from tidegate.core.errors import UsageError
from tidegate.core.quantities import parse_duration
from tidegate.core.spec import Problem, SpecError


@dataclass(frozen=True)
class Asked:
    """Of whom Prometheus is asked; `url` is None when it is not."""

    url: str | None
    region: str
    stable: str
    canary: str
    since: str


@dataclass(frozen=True)
class Told:
    """In which form the judgement is told, where, and what CI gets besides."""

    report: str
    target: Path | None
    reports: Reports


def run(gates: Path, evidence: Path | None, asked: Asked, told: Told) -> int:
    """Judge, tell, and return what the worst gate means."""
    with errors_told(told.reports):
        judgement = _judged(gates, evidence, asked)
    told.reports.write(REPORTS["junit"](judgement), REPORTS["markdown"](judgement))
    text = REPORTS[told.report](judgement)
    if told.target is None:
        print(text, end="")
    else:
        write_whole({told.target: text})
        note(f"{judgement.outcome}: {told.target}")
    return EXIT_CODES[judgement.outcome]


def _judged(gates: Path, evidence: Path | None, asked: Asked) -> Judgement:
    judged = read_gates(gates)
    if evidence is not None and asked.url is None:
        return _of_lines(judged, evidence)
    if evidence is None and asked.url is not None:
        return _of_prometheus(judged, asked.url, asked)
    raise UsageError("the evidence is in a file or in Prometheus", hint="give either --evidence or --prometheus")


def _of_lines(judged: Judged, evidence: Path) -> Judgement:
    """Raises SpecError with every line that is no batch: what CI hands us as a file has to be whole."""
    stdin = str(evidence) == "-"
    stream = VerdictStream(judged.terms("users"), file="stdin" if stdin else str(evidence))
    wrong: list[Problem] = []
    times: list[float] = []
    for line in _lines(evidence, stdin=stdin):
        answer = stream.answer(line)
        if answer is None:
            continue
        wrong += [Problem(stream.file, odd.line, odd.field, odd.found, odd.expected) for odd in answer.problems]
        if answer.time is not None:
            times = [*times[:1], answer.time]
    if wrong:
        raise SpecError(wrong)
    return _judgement(judged, stream, times, asked_of="users")


def _lines(evidence: Path, *, stdin: bool) -> Iterator[bytes]:
    if stdin:
        yield from sys.stdin.buffer
        return
    try:
        with evidence.open("rb") as file:
            yield from file
    except OSError as error:
        found = (error.strerror or "an unreadable file").lower()
        raise SpecError([Problem(str(evidence), 1, "", found, "a file of batches, one a line")]) from error


def _of_prometheus(judged: Judged, url: str, asked: Asked) -> Judgement:
    """Raises OutsideError when Prometheus is not there."""
    from gates.adapters.prometheus import PrometheusSource

    if not (asked.region and asked.stable and asked.canary):
        raise UsageError("--prometheus needs to know whom to ask about", hint="give --region, --stable and --canary")
    source = PrometheusSource(url)
    arms = [
        ArmKey(region=asked.region, role=role, version=version)
        for role, version in (("stable", asked.stable), ("canary", asked.canary))
    ]
    stream = VerdictStream(judged.terms("proxy"))
    until = datetime.now(UTC) - source.settles_within
    times: list[float] = []
    for start, end in _windows(until - _since(asked.since), until, judged.look):
        batch: Batch = source.batch(arms[0], arms[1], start, end)
        stream.take(batch)
        times = [*times[:1], batch.time]
    return _judgement(judged, stream, times, asked_of="proxy")


def _since(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--since: found {text!r}; expected {error}") from error


def _windows(since: datetime, until: datetime, look: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """Windows that touch and end at `until`; the first begins at `since` or up to a look later."""
    start = until - (until - since) // look * look
    while start < until:
        yield start, start + look
        start += look


def _judgement(judged: Judged, stream: VerdictStream, times: list[float], *, asked_of: Source) -> Judgement:
    for source in sorted(stream.unasked):
        note(f"no gate listens to `{source}`, only to `{asked_of}`; name it under `sources` in a file of kind Gates")
    final = stream.final()
    return Judgement(
        name=judged.name,
        outcome=final.outcome,
        batches=final.batch,
        since=times[0] if times else None,
        until=times[-1] if times else None,
        verdicts=final.verdicts,
        not_asked=judged.not_asked,
    )
