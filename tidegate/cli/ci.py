"""Where CI systems look for reports, and writing them there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.process import note

if TYPE_CHECKING:
    from pipelines.events.state import DeliveryState

JUNIT = Path("tidegate-junit.xml")
"""Where `--ci` writes it unless told otherwise; what GitLab, Jenkins and GitHub's actions are told to collect."""
SUMMARY = Path("tidegate-summary.md")
"""The same of the summary, in GitLab's CI, which has no page of its own for it but keeps artifacts."""


@dataclass(frozen=True)
class Reports:
    """Where the two reports go; None where nobody asks for one."""

    junit: Path | None = None
    summary: Path | None = None
    shared: bool = False
    """The summary's file is a page that other steps write to: ours is added at its end."""

    def write(self, junit: str, summary: str) -> None:
        """Write what was asked for. A file that cannot be written is told: the exit code is the delivery's alone."""
        try:
            if self.junit:
                self.junit.write_text(junit, encoding="utf-8")
                note(f"JUnit XML: {self.junit}")
            if self.summary:
                with self.summary.open("a" if self.shared else "w", encoding="utf-8") as file:
                    file.write(summary)
                note("summary: on the page of this job" if self.shared else f"summary: {self.summary}")
        except OSError as error:
            note(f"a report could not be written: {error}")

    def tell(self, story: DeliveryState, delivery: str) -> None:
        """Write how a delivery ended, or stands now; `delivery` is its id, empty when none was opened."""
        if self.junit or self.summary:
            from pipelines.views.ci import delivery_junit, delivery_markdown

            now = datetime.now(UTC)
            self.write(delivery_junit(story, delivery, now), delivery_markdown(story, delivery, now))


def reports_wanted(*, ci: bool, files: Sequence[Path] | None, environment: Mapping[str, str] = os.environ) -> Reports:
    """What the options ask for: `files` by their suffix; with `ci` also what the CI system's variables say.

    Raises:
        UsageError: a file has another suffix, or a report could not be written there: better now than once the
            delivery is over.
    """
    named: dict[str, Path] = {}
    for path in files or ():
        if path.suffix not in (".xml", ".md"):
            raise UsageError(f"--report {path}: expected a file that ends in .xml for JUnit, or .md for Markdown")
        named[path.suffix] = path
    junit, summary = named.get(".xml", JUNIT if ci else None), named.get(".md")
    page = environment.get("GITHUB_STEP_SUMMARY") if ci and summary is None else None
    if page:
        summary = Path(page)
    elif ci and summary is None and environment.get("GITLAB_CI"):
        summary = SUMMARY
    for path in filter(None, (junit, summary)):
        _try(path)
    return Reports(junit, summary, shared=bool(page))


def _try(path: Path) -> None:
    """Open it as the report will; what was not there is not left behind empty."""
    there = path.exists()
    if there and not path.is_file() and not path.is_dir():
        return  # A pipe would wait for its reader.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"no report can be written to {path}: {why}", hint="name another file") from error


@contextmanager
def errors_told(reports: Reports, story: Callable[[], DeliveryState] | None = None) -> Iterator[None]:
    """What ends a command before the delivery's own end is in the reports too: or CI would show that nothing ran.

    `story` gives what the delivery did until then; None where there is none.
    """
    try:
        yield
    except TidegateError as error:
        from pipelines.events.state import DeliveryState
        from pipelines.views.wording import broken_off

        reports.tell(broken_off(story() if story else DeliveryState(), str(error)), "")
        raise
