"""`tidegate gate compare`: two endpoints on a golden set."""

from __future__ import annotations

import sys
import time

from gates.comparison.comparison import EndpointComparison
from gates.model import worst
from gates.reports.check_report import ComparisonReport, as_lines
from tidegate.app.gates.compare import CompareOptions, compare
from tidegate.cli.views.console import PlainConsole
from tidegate.core.process import note


def compared(options: CompareOptions, *, moving: bool) -> ComparisonReport:
    """What every gate says at the end; progress is a line that changes, on a terminal and when `moving`."""
    with _Progress(moving=moving and sys.stderr.isatty()) as progress:
        comparison = compare(options, progress.look)
    verdicts = comparison.verdicts(deadline_passed=True)
    times = comparison.times
    return ComparisonReport(
        name=comparison.plan.name,
        outcome=worst(verdict.outcome for verdict in verdicts),
        batches=len(times),
        since=min(times, default=None),
        until=max(times, default=None),
        verdicts=as_lines(verdicts),
        not_asked=comparison.plan.not_asked,
        likeness=comparison.likeness,
        unanswered=comparison.unanswered,
        differing=comparison.differing,
    )


PLAIN_SECONDS = 15.0
"""Between two lines of progress in a log."""


class _Progress:
    """Where the comparison stands; use it as a context."""

    def __init__(self, *, moving: bool) -> None:
        self._status = PlainConsole(stderr=True).status("asking both endpoints") if moving else None
        self._told = time.monotonic()

    def __enter__(self) -> _Progress:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def look(self, comparison: EndpointComparison) -> None:
        """Say it, when it is time."""
        now = time.monotonic()
        if self._status is None and now - self._told < PLAIN_SECONDS:
            return
        self._told = now
        line = _standing(comparison)
        if self._status:
            self._status.update(line)
        else:
            note(line)


def _standing(comparison: EndpointComparison) -> str:
    gates = ", ".join(f"{verdict.gate} {verdict.outcome}" for verdict in comparison.verdicts())
    alike = "" if comparison.likeness is None else f", {comparison.likeness:.2f} alike"
    count = len(comparison.times)
    return f"{count:,} {'pair' if count == 1 else 'pairs'}{alike}: {gates}"
