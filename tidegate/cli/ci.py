"""`--ci`: the two reports that CI systems are told to collect."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.errors import TidegateError
from tidegate.core.process import note

if TYPE_CHECKING:
    from pipelines.events.state import DeliveryState

JUNIT, SUMMARY = Path("tidegate-junit.xml"), Path("tidegate-summary.md")


def write_reports(junit: str, summary: str) -> None:
    """Write both; GitHub's page of the job, to which other steps write too, gets the summary at its end.

    A file that cannot be written is told: the exit code is the delivery's alone.
    """
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    try:
        JUNIT.write_text(junit, encoding="utf-8")
        note(f"JUnit XML: {JUNIT}")
        with Path(page or SUMMARY).open("a" if page else "w", encoding="utf-8") as file:
            file.write(summary)
        note("summary: on the page of this job" if page else f"summary: {SUMMARY}")
    except OSError as error:
        note(f"a report could not be written: {error}")


def report_delivery(story: DeliveryState, delivery: str) -> None:
    """Write how a delivery ended, or stands now; `delivery` is its id, empty when none was opened."""
    from pipelines.views.ci import delivery_junit, delivery_markdown

    now = datetime.now(UTC)
    write_reports(delivery_junit(story, delivery, now), delivery_markdown(story, delivery, now))


@contextmanager
def errors_reported(ci: bool, story: Callable[[], DeliveryState] | None = None) -> Iterator[None]:
    """With `ci`, report what ends a command before the delivery's own end: or CI would show that nothing ran.

    `story` gives what the delivery did until then; None where there is none.
    """
    try:
        yield
    except TidegateError as error:
        if ci:
            from pipelines.events.state import DeliveryState
            from pipelines.views.wording import broken_off

            report_delivery(broken_off(story() if story else DeliveryState(), str(error)), "")
        raise
