"""`gate check` that goes on where the last call ended: one sequential test, whose state is a file between two calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from gates.model import ArmKey
from gates.ports import EvidenceSource
from gates.reports.check_report import CheckReport, as_lines
from gates.sequential_test import AnalysisPlan
from gates.sessions.journal import SessionJournal, on_disk, owned
from gates.sessions.session import Session, decides
from gates.transcript import OpenedLine
from tidegate.core.clock import Clock
from tidegate.core.errors import UsageError
from tidegate.core.spec import SpecError
from tidegate.core.units import format_duration


def continued(
    name: str,
    terms: AnalysisPlan,
    arms: tuple[ArmKey, ArmKey],
    source: EvidenceSource,
    *,
    file: Path,
    clock: Clock,
    look: timedelta,
    since: timedelta,
    within: timedelta | None = None,
    not_asked: Sequence[str] = (),
) -> CheckReport:
    """Read the windows that have passed since the last call, each once, and say what holds now.

    Args:
        name: of the judgement.
        terms: what the gates ask; fixed by the first call.
        arms: stable and canary.
        source: has the evidence.
        file: keeps the test between two calls.
        clock: says how much has passed.
        look: between two batches of evidence.
        since: how long before the first call the first window begins; later calls go on from the last.
        within: from there until what has no verdict is inconclusive; None for as long as anybody asks.
        not_asked: gates that this evidence does not answer.

    Raises:
        UsageError: another process has the file, or it was begun with other gates or arms.
        SpecError: the file is none of ours, or not what was written.
        OutsideError: the evidence cannot be read, or the file cannot be written. What was read is not lost.
    """
    stable, canary = arms
    known = clock.now() - source.settles_within
    with owned(file, f"--session {file}", "gate check"), on_disk(f"--session {file}"):
        opened = OpenedLine(
            stable=stable,
            canary=canary,
            since=known.timestamp() - since.total_seconds(),
            look_seconds=look.total_seconds(),
            within_seconds=within.total_seconds() if within else None,
        )
        session = _session(name, terms, opened, file)
        while window := session.due(known):
            session.take(source.batch(stable, canary, *window))
        verdicts = session.verdicts(deadline_passed=session.is_over)
    return CheckReport(
        name=name,
        outcome=decides(verdicts).outcome,
        batches=session.batches,
        since=session.first,
        until=max(session.times.values(), default=None),
        verdicts=as_lines(verdicts),
        not_asked=tuple(not_asked),
    )


def _session(name: str, terms: AnalysisPlan, asked: OpenedLine, file: Path) -> Session:
    journal = SessionJournal(file)
    try:
        lines = journal.lines()
    except SpecError as error:
        # Of a file that is none of ours, the first problem says it.
        raise SpecError(error.problems[:1]) from error
    if not lines:
        return Session.begun(name, terms, asked, journal.write)
    opened = next((line for line in lines if isinstance(line, OpenedLine)), None)
    if opened is None:
        raise UsageError(f"--session {file}: a transcript that no `gate check` has begun", hint="name another file")
    session = Session(lines, journal.write, file=str(file))
    odd = _difference(opened, asked) or ("it was begun with other gates" if session.terms != terms else "")
    if odd:
        raise UsageError(f"--session {file}: {odd}", hint="name another file, or ask as it was asked first")
    return session


def _difference(opened: OpenedLine, asked: OpenedLine) -> str:
    """What the first call asked otherwise; empty where it asked the same."""
    for word, was, now in (("stable", opened.stable, asked.stable), ("canary", opened.canary, asked.canary)):
        if was != now:
            return f"it is of {word} {_arm(was)}, not of {_arm(now)}"
    if opened.look_seconds != asked.look_seconds:
        return f"it was begun with windows of {format_duration(timedelta(seconds=opened.look_seconds))}"
    if opened.within_seconds != asked.within_seconds:
        begun = opened.within_seconds
        return (
            f"it was begun with {f'--within {format_duration(timedelta(seconds=begun))}' if begun else 'no --within'}"
        )
    return ""


def _arm(arm: ArmKey) -> str:
    return f"{arm.version} in {arm.region}" if arm.region else arm.version
