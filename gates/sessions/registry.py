"""The sessions of a server: found by their keys, kept in a folder, fed when asked, forgotten when nobody asks.

Called from several threads at once: those who ask about one key wait for each other, others do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock

from gates.model import ArmKey, GateOutcome, GateVerdict
from gates.ports import EvidenceSource
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.sessions.journal import SessionJournal, on_disk
from gates.sessions.model import SessionAnswer, SessionKey, SessionLimits, TooManySessions, refuse_one_version
from gates.sessions.session import Session, decides
from gates.transcript import OpenedLine
from tidegate.core.clock import Clock
from tidegate.core.errors import OutsideError, UsageError

Heard = Callable[[SessionAnswer], None]


@dataclass(frozen=True)
class SessionTerms:
    """What new sessions are asked; those that stand keep the terms with which they began."""

    plan: AnalysisPlan
    look: timedelta
    """Between two batches of evidence."""
    service: str = ""
    """The only name that is asked about, where the file of gates says one."""


@dataclass
class _Entry:
    lock: Lock = field(default_factory=Lock)
    session: Session | None = None
    answer: SessionAnswer | None = None
    gone: bool = False
    """Forgotten while somebody waited for the lock."""


class Sessions:
    """Sequential tests by key."""

    def __init__(
        self,
        terms: SessionTerms,
        source: EvidenceSource,
        folder: Path,
        clock: Clock,
        *,
        limits: SessionLimits | None = None,
        changed: Heard = lambda _: None,
    ) -> None:
        """`folder` has a file for each session; `changed` hears an answer whose outcome is another than before."""
        self._terms, self._source, self._folder, self._clock = terms, source, folder, clock
        self._limits, self._changed = limits or SessionLimits(), changed
        self._entries: dict[str, _Entry] = {}
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def ask(self, key: SessionKey, *, weight: str = "") -> SessionAnswer:
        """Read what has passed since the last time, and say what holds now; begins with the first time it is asked.

        Raises:
            UsageError: nothing could be judged: the two versions are one, the name is another service's, or there are
                no series of stable. No session begins.
            TooManySessions: it would be a new one, and there is no room.
            OutsideError: the evidence cannot be read, or the session's file cannot be written. Nothing is lost.
            SpecError: the session's file is not what was written.
        """
        self._refuse_wrong(key)
        with self._entry(key) as entry, on_disk(self._folder):
            # Until the end, it is none: after an error on the way, the file says how far it had come.
            session, entry.session = entry.session or self._session(key), None
            session.weigh(weight)
            try:
                behind = self._feed(session)
            except OutsideError:
                entry.session = session
                self._touch(key)
                raise
            before, entry.answer = entry.answer, self._answer(key, session, behind=behind)
            self._touch(key)
            entry.session = session
        if before is None or before.outcome is not entry.answer.outcome:
            self._changed(entry.answer)
        return entry.answer

    def close(self, key: SessionKey) -> bool:
        """Forget it; whether there was one."""
        with self._entry(key) as entry, on_disk(self._folder):
            return self._forget(key.digest, entry)

    def standing(self) -> Sequence[SessionAnswer]:
        """The last answers of those that were asked since the server started."""
        with self._lock:
            return [entry.answer for entry in self._entries.values() if entry.answer and not entry.gone]

    def count(self) -> int:
        """How many stand, those of before the server's start among them."""
        return sum(1 for _ in self._folder.glob("*.jsonl"))

    def sweep(self) -> int:
        """Forget those that nobody has asked for too long; how many."""
        oldest = (self._clock.now() - self._limits.expire).timestamp()
        found = 0
        for path in list(self._folder.glob("*.jsonl")):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    with self._lock:
                        entry = self._entries.setdefault(path.stem, _Entry())
                    # The one who holds it is asking just now.
                    if entry.lock.acquire(blocking=False):
                        with _released(entry.lock):
                            found += self._forget(path.stem, entry)
        return found

    @contextmanager
    def _entry(self, key: SessionKey) -> Iterator[_Entry]:
        while True:
            with self._lock:
                entry = self._entries.setdefault(key.digest, _Entry())
            with entry.lock:
                if entry.gone:
                    continue
                try:
                    yield entry
                finally:
                    if entry.session is None:
                        self._drop(key.digest, entry)
                return

    def _session(self, key: SessionKey) -> Session:
        journal = SessionJournal(self._path(key))
        if lines := journal.lines():
            return Session(lines, journal.write, file=str(journal.path))
        if self.count() >= self._limits.sessions:
            self.sweep()
        if self.count() >= self._limits.sessions:
            raise TooManySessions(
                f"{self._limits.sessions:,} sessions are open already", hint="close one, or start with more --sessions"
            )
        stable, canary = key.arms
        begins = self._known()
        self._refuse_without_series(stable, canary, begins)
        opened = OpenedLine(
            stable=stable,
            canary=canary,
            since=begins.timestamp(),
            look_seconds=self._terms.look.total_seconds(),
            within_seconds=self._limits.within.total_seconds(),
        )
        return Session.begun(str(key), self._terms.plan, opened, journal.write)

    def _refuse_wrong(self, key: SessionKey) -> None:
        refuse_one_version(key.stable, key.canary)
        if (service := self._terms.service) and key.name != service:
            raise UsageError(
                f"name: found {key.name!r}; expected {service!r}, the metadata.name of the gates",
                hint="leave metadata.name out of the file to judge several services by it",
            )

    def _refuse_without_series(self, stable: ArmKey, canary: ArmKey, until: datetime) -> None:
        """Stable serves, so it has series; the canary may have begun just now."""
        looked = SequentialTest(self._terms.plan)
        looked.take(self._source.batch(stable, canary, until - self._terms.look, until))
        for gate, missing in looked.without_series(1).items():
            if str(stable) in missing:
                raise UsageError(f"{gate}: {missing}", hint="check `metrics.sources` of the gates, and `stable`")

    def _feed(self, session: Session) -> bool:
        """Take the windows that have passed; whether some are left, because it took too long."""
        until = self._clock.monotonic() + self._limits.ask_seconds
        while window := session.due(self._known()):
            if self._clock.monotonic() >= until:
                return True
            opened = session.opened
            session.take(self._source.batch(opened.stable, opened.canary, *window))
        return False

    def _known(self) -> datetime:
        """Until when everything that happened is known."""
        return self._clock.now() - self._source.settles_within

    def _answer(self, key: SessionKey, session: Session, *, behind: bool) -> SessionAnswer:
        judged, blind = session.verdicts(deadline_passed=session.is_over), session.without_series
        verdicts = [
            each.model_copy(update={"outcome": GateOutcome.ERROR})
            if each.outcome is GateOutcome.RUNNING and each.gate in blind
            else each
            for each in judged
        ]
        first = decides(verdicts)
        return SessionAnswer(
            key=key,
            outcome=first.outcome,
            reason=f"{first.gate}: {first.reason}",
            since=session.opened.since,
            until=max(session.times.values(), default=None),
            behind=behind,
            batches=session.batches,
            weight=session.weight,
            verdicts=tuple(GateVerdict(**each.model_dump(include=set(GateVerdict.model_fields))) for each in verdicts),
        )

    def _touch(self, key: SessionKey) -> None:
        now = self._clock.now().timestamp()
        os.utime(self._path(key), (now, now))

    def _forget(self, digest: str, entry: _Entry) -> bool:
        there = (path := self._folder / f"{digest}.jsonl").exists()
        path.unlink(missing_ok=True)
        entry.session = None
        self._drop(digest, entry)
        return there

    def _drop(self, digest: str, entry: _Entry) -> None:
        """Those who wait for it look for another."""
        entry.gone = True
        with self._lock:
            if self._entries.get(digest) is entry:
                del self._entries[digest]

    def _path(self, key: SessionKey) -> Path:
        return self._folder / f"{key.digest}.jsonl"


@contextmanager
def _released(lock: Lock) -> Iterator[None]:
    try:
        yield
    finally:
        lock.release()
