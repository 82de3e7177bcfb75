"""`tidegate gate check`: the judge of a canary for any orchestrator and any CI."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gates.evidence.batch import Source
from gates.model import ArmKey
from gates.reports.check_report import CheckReport
from gates.reports.evidence import JudgedEvidence
from gates.sessions.model import refuse_one_version
from tidegate.app.gates.continued import ContinuedCheck, continued
from tidegate.app.wiring.gates.gate_sets import read_gates
from tidegate.app.wiring.gates.model import GateSet
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.process import note
from tidegate.core.spec import Problem, SpecError


@dataclass(frozen=True)
class PrometheusTarget:
    """Of whom Prometheus is asked; `url` is None when it is not."""

    url: str | None = None
    region: str = ""
    stable: str = ""
    canary: str = ""
    since: timedelta = timedelta(minutes=30)
    access: Path | None = None
    """How it is told who asks."""
    state: Path | None = None
    """The file of a test that several calls carry on; None where one call is all."""
    within: timedelta | None = None
    """From the begin of that test until what has no verdict is inconclusive."""


def judge(gates: Path, evidence: Path | None, asked: PrometheusTarget) -> CheckReport:
    """What every gate says of the evidence.

    Raises:
        UsageError: the evidence is nowhere, or in two places.
        SpecError: a gate or a line of the evidence is wrong.
    """
    judged = read_gates(gates, of_prometheus=evidence is None and asked.url is not None)
    if evidence is not None and asked.url is None:
        refuse_unused(asked)
        return _of_lines(judged, evidence)
    if evidence is None and asked.url is not None:
        return _of_prometheus(judged, asked.url, asked)
    raise UsageError("the evidence is in a file or in Prometheus", hint="give either --evidence or --prometheus")


def refuse_unused(asked: PrometheusTarget) -> None:
    """Raises UsageError when an option is given that only a Prometheus has a use for."""
    options = {name: name for name in ("region", "stable", "canary", "since", "state", "within")}
    for name, option in {**options, "access": "prometheus-access"}.items():
        if getattr(asked, name) != getattr(PrometheusTarget, name):
            raise UsageError(f"--{option} is of no use with --evidence", hint="the batches of the file say it")


def _of_lines(judged: GateSet, evidence: Path) -> CheckReport:
    """Raises SpecError with every line that is no batch: what CI hands us as a file has to be whole."""
    stdin = str(evidence) == "-"
    test = JudgedEvidence(judged.terms("users"), file="stdin" if stdin else str(evidence))
    wrong: list[Problem] = []
    for line in _lines(evidence, stdin=stdin):
        try:
            test.read(line)
        except SpecError as error:
            wrong += error.problems
    if wrong:
        raise SpecError(wrong)
    return _report(judged, test, asked_of="users")


def _lines(evidence: Path, *, stdin: bool) -> Iterator[bytes]:
    if stdin:
        yield from sys.stdin.buffer
        return
    try:
        with evidence.open("rb") as file:
            yield from file
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        found = "no such file" if missing else (error.strerror or "an unreadable file").lower()
        expected = "a file of batches, one a line"
        raise SpecError([Problem(str(evidence), 0 if missing else 1, "", found, expected)]) from error


def _of_prometheus(judged: GateSet, url: str, asked: PrometheusTarget) -> CheckReport:
    """Raises OutsideError when Prometheus is not there."""
    # A file of evidence needs no client.
    from tidegate.app.wiring.gates.prometheus import evidence_in

    by_region = judged.by_region
    if not (asked.stable and asked.canary and (asked.region or not by_region)):
        options = "--region, --stable and --canary" if by_region else "--stable and --canary"
        raise UsageError(
            f"--prometheus needs {'a region and ' if by_region else ''}two versions", hint=f"give {options}"
        )
    refuse_one_version(asked.stable, asked.canary)
    terms = judged.terms("proxy")
    source = evidence_in(url, asked.access, judged, terms)
    stable = ArmKey(region=asked.region, role="stable", version=asked.stable)
    canary = ArmKey(region=asked.region, role="canary", version=asked.canary)
    if asked.state is not None:
        check = ContinuedCheck(
            judged.name, terms, judged.look, stable, canary, asked.since, asked.within, judged.not_asked
        )
        return continued(check, source, asked.state, SystemClock())
    if asked.within is not None:
        raise UsageError("--within is of no use without --state", hint="one call judges what is there")
    test = JudgedEvidence(terms)
    until = datetime.now(UTC) - source.settles_within
    for start, end in _windows(until - asked.since, until, judged.look):
        test.take(source.batch(stable, canary, start, end))
    return _report(judged, test, asked_of="proxy")


def _windows(since: datetime, until: datetime, look: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """Windows that touch and end at `until`; the first begins at `since` or up to a look later."""
    start = until - (until - since) // look * look
    while start < until:
        yield start, start + look
        start += look


def _report(judged: GateSet, test: JudgedEvidence, *, asked_of: Source) -> CheckReport:
    for source in sorted(test.unasked):
        note(f"no gate listens to `{source}`, only to `{asked_of}`; name it under `sources` in a file of kind Gates")
    return test.report(judged.name, not_asked=judged.not_asked)
