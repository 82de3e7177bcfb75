"""One sequential test that reads evidence in windows that were fixed when it began.

Windows follow each other from the start, all of one length. So what it has judged at a moment depends on that moment
alone: asked every second or once an hour, it takes the same batches and comes to the same verdicts, and nobody peeks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

from gates.evidence.batch import Batch
from gates.model import GateOutcome, Verdict, worst
from gates.sequential_test import AnalysisPlan
from gates.transcript import BatchLine, Line, OpenedLine, Replay, RestartLine, TermsLine, VerdictsLine

MOST_WITHOUT_SERIES = 2
"""Batches: engines that have just become ready are scraped within one."""

Write = Callable[[Sequence[Line]], None]
"""Keeps lines of the transcript before they have any effect."""


class Session:
    """A test and its transcript."""

    def __init__(self, lines: Sequence[Line], write: Write, *, file: str = "session") -> None:
        """`lines` are its transcript so far, which begins with its terms; `file` is its name in errors.

        Raises:
            SpecError: the lines are not those of one test.
        """
        self._write = write
        self._opened = next((line for line in lines if isinstance(line, OpenedLine)), None)
        self._said: tuple[GateOutcome, ...] = ()
        self.weight = ""
        """What was said last of the canary's share of traffic."""
        self.batches = 0
        """Written down, each of one window where windows are read."""
        self.times: dict[str, float] = {}
        """Of the last batch, by source, as Unix time in seconds."""
        self.first: float | None = None
        """Of the first batch."""
        again = Replay(file)
        for line in lines:
            self._remember(line)
            # What was said then is said; it would cost time to compare it.
            if not isinstance(line, VerdictsLine):
                again.take(line)
        self._test = again.trial

    @classmethod
    def begun(cls, name: str, terms: AnalysisPlan, opened: OpenedLine | None, write: Write) -> Session:
        """A new one; its terms are written before there is any evidence."""
        lines: list[Line] = [TermsLine(trial=name, terms=terms)]
        lines += [opened] if opened else []
        write(lines)
        return cls(lines, write)

    @property
    def terms(self) -> AnalysisPlan:
        """Fixed before there was evidence."""
        return self._test.plan

    @property
    def opened(self) -> OpenedLine:
        """Whose evidence is read."""
        assert self._opened is not None, "only a session that reads evidence by itself was opened"
        return self._opened

    def due(self, now: datetime) -> tuple[datetime, datetime] | None:
        """The next window, when it has passed and is within the session's time; both ends in UTC.

        `now` is when the last evidence is from that is known by now.
        """
        start, end = self._window()
        return (start, end) if end <= now and not self.is_over else None

    @property
    def is_over(self) -> bool:
        """Whether everything has been read that may be."""
        opened = self.opened
        if opened.within_seconds is None:
            return False
        return self._window()[1].timestamp() > opened.since + opened.within_seconds

    def take(self, batch: Batch) -> None:
        """Learn from one batch.

        Raises:
            UsageError: it is no later than the last of its source; nothing was learnt, but it was written down.
        """
        line = BatchLine(step=self.weight, batch=batch)
        self._write([line])
        self._remember(line)
        self._test.take(batch)

    def weigh(self, weight: str) -> None:
        """The canary has another share of traffic: whether it is fine must be shown again; empty when nobody says."""
        if not weight or weight == self.weight:
            return
        line = RestartLine(step=weight)
        self._write([line])
        self._remember(line)
        self._test.restart()

    def verdicts(self, *, deadline_passed: bool) -> Sequence[Verdict]:
        """As the test's; written down when an outcome is another than before."""
        verdicts = self._test.verdicts(deadline_passed=deadline_passed)
        line = VerdictsLine(step=self.weight, deadline_passed=deadline_passed, verdicts=verdicts)
        if self._said != tuple(verdict.outcome for verdict in verdicts):
            self._write([line])
            self._remember(line)
        return verdicts

    @property
    def without_series(self) -> Collection[str]:
        """The gates that had no series of an arm in the last `MOST_WITHOUT_SERIES` batches: they may never have any."""
        return self._test.without_series(MOST_WITHOUT_SERIES).keys()

    def _window(self) -> tuple[datetime, datetime]:
        look = timedelta(seconds=self.opened.look_seconds)
        start = datetime.fromtimestamp(self.opened.since, UTC) + self.batches * look
        return start, start + look

    def _remember(self, line: Line) -> None:
        if isinstance(line, BatchLine):
            self.batches += 1
            time = line.batch.time
            self.first = time if self.first is None else self.first
            self.times[line.batch.source] = max(time, self.times.get(line.batch.source, time))
        elif isinstance(line, RestartLine):
            self.weight = line.step
        elif isinstance(line, VerdictsLine):
            self._said = tuple(verdict.outcome for verdict in line.verdicts)


def decides(verdicts: Sequence[Verdict]) -> Verdict:
    """The first of those that are as bad as all together."""
    outcome = worst(verdict.outcome for verdict in verdicts)
    return next(verdict for verdict in verdicts if verdict.outcome is outcome)
