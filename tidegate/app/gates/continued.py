"""`gate check` that goes on where the last call ended: one sequential test, whose state is a file between two calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gates.model import ArmKey
from gates.ports import EvidenceSource
from gates.reports.check_report import CheckReport, as_lines
from gates.sequential_test import AnalysisPlan
from gates.sessions.journal import SessionJournal
from gates.sessions.session import Session, decides
from gates.transcript import Line, OpenedLine
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, UsageError
from tidegate.core.files import lock_open_file
from tidegate.core.spec import SpecError
from tidegate.core.units import format_duration

ANOTHER = "name another file, or ask as it was asked first"


@dataclass(frozen=True)
class ContinuedCheck:
    """What one call asks."""

    name: str
    terms: AnalysisPlan
    look: timedelta
    """Between two batches of evidence."""
    stable: ArmKey
    canary: ArmKey
    since: timedelta
    """How long before the first call the first window begins; later calls go on from the last."""
    within: timedelta | None
    """From there until what has no verdict is inconclusive; None for as long as anybody asks."""
    not_asked: Sequence[str] = ()


def continued(asked: ContinuedCheck, source: EvidenceSource, file: Path, clock: Clock) -> CheckReport:
    """Read the windows that have passed since the last call, each once, and say what holds now.

    Raises:
        UsageError: another process has the file, or it was begun with other gates or arms.
        SpecError: the file is none of ours, or not what was written.
        OutsideError: the evidence cannot be read, or the file cannot be written. What was read is not lost.
    """
    known = clock.now() - source.settles_within
    with _own_file(file):
        session = _session(asked, file, since=known.timestamp() - asked.since.total_seconds())
        while window := session.due(known):
            session.take(source.batch(asked.stable, asked.canary, *window))
        verdicts = session.verdicts(deadline_passed=session.is_over)
    return CheckReport(
        name=asked.name,
        outcome=decides(verdicts).outcome,
        batches=session.batches,
        since=session.first,
        until=max(session.times.values(), default=None),
        verdicts=as_lines(verdicts),
        not_asked=tuple(asked.not_asked),
    )


def _session(asked: ContinuedCheck, file: Path, *, since: float) -> Session:
    journal = SessionJournal(file)
    if lines := _lines(journal):
        _refuse_other(asked, lines, file)
        session = Session(lines, journal.write, file=str(file))
        if session.terms != asked.terms:
            raise UsageError(f"--state {file}: it was begun with other gates", hint=ANOTHER)
        return session
    opened = OpenedLine(
        stable=asked.stable,
        canary=asked.canary,
        since=since,
        look_seconds=asked.look.total_seconds(),
        within_seconds=asked.within.total_seconds() if asked.within else None,
    )
    return Session.begun(asked.name, asked.terms, opened, journal.write)


def _lines(journal: SessionJournal) -> Sequence[Line]:
    """Of a file that is none of ours, the first problem says it."""
    try:
        return journal.lines()
    except SpecError as error:
        raise SpecError(error.problems[:1]) from error


def _refuse_other(asked: ContinuedCheck, lines: Sequence[Line], file: Path) -> None:
    opened = next((line for line in lines if isinstance(line, OpenedLine)), None)
    if opened is None:
        raise UsageError(f"--state {file}: a transcript that no `gate check` has begun", hint="name another file")
    for word, was, now in (("stable", opened.stable, asked.stable), ("canary", opened.canary, asked.canary)):
        if was != now:
            raise UsageError(f"--state {file}: it is of {word} {_arm(was)}, not of {_arm(now)}", hint=ANOTHER)
    if opened.look_seconds != asked.look.total_seconds():
        windows = format_duration(timedelta(seconds=opened.look_seconds))
        raise UsageError(f"--state {file}: it was begun with windows of {windows}", hint=ANOTHER)
    within = None if opened.within_seconds is None else timedelta(seconds=opened.within_seconds)
    if asked.within != within:
        begun = f"--within {format_duration(within)}" if within else "no --within"
        raise UsageError(f"--state {file}: it was begun with {begun}", hint=ANOTHER)


def _arm(arm: ArmKey) -> str:
    return f"{arm.version} in {arm.region}" if arm.region else arm.version


@contextmanager
def _own_file(path: Path) -> Iterator[None]:
    """The file, ours alone while the block lasts."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--state {path}: {(error.strerror or 'cannot be used').lower()}") from error
    with lock:
        if not lock_open_file(lock):
            raise UsageError(f"--state {path}: another `gate check` uses it", hint="wait for its end")
        try:
            yield
        except OSError as error:
            message = f"--state {path}: {(error.strerror or 'cannot be written').lower()}"
            raise OutsideError(message, hint="check the disk") from error
