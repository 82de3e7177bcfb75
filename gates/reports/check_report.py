"""A judgement as text, JSON, JUnit XML and Markdown: what CI systems and people read."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import ClassVar

from junitparser import Skipped

from gates.model import DifferingPrompt, GateOutcome, OutcomeName, Verdict
from gates.reports.junit import case, case_of, junit_xml
from tidegate.core.errors import ExitCode
from tidegate.core.model import Value
from tidegate.core.text import table_cell

NOT_ASKED = "not judged here: it needs more than batches of evidence"
EXIT_CODES: Mapping[GateOutcome, ExitCode] = {
    GateOutcome.PASS: ExitCode.DELIVERED,
    GateOutcome.FAIL: ExitCode.ROLLED_BACK,
    GateOutcome.RUNNING: ExitCode.INCONCLUSIVE,
    GateOutcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    GateOutcome.ERROR: ExitCode.OUTSIDE,
}
"""How a command ends that ends with this outcome."""


class CheckReport(Value):
    """What all the evidence came to."""

    unit: ClassVar[tuple[str, str]] = ("batch", "batches")
    """What evidence is counted in."""

    name: str
    outcome: OutcomeName
    """The worst of all gates."""
    batches: int
    since: float | None
    """Unix time of the first batch, in seconds; None without any."""
    until: float | None
    """Unix time of the last batch."""
    verdicts: tuple[Verdict, ...]
    not_asked: tuple[str, ...] = ()
    """Gates of the spec that evidence in batches does not answer; they say nothing here, not that all is well."""


class ComparisonReport(CheckReport):
    """What the answers of two endpoints came to; a batch is a pair of answers to one prompt."""

    unit: ClassVar[tuple[str, str]] = ("pair of answers", "pairs of answers")

    differing: tuple[DifferingPrompt, ...] = ()
    """Prompts of the golden set whose answers score differently, worst first."""


def as_text(judgement: CheckReport, columns: int | None = None) -> str:
    """Lines for people: one for each gate, or as many as a terminal of so many `columns` takes for its reason."""
    rows = [(str(verdict.outcome), verdict.gate, verdict.reason) for verdict in judgement.verdicts]
    rows += [("not asked", gate, NOT_ASKED) for gate in judgement.not_asked]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    indent = sum(widths) + 4
    room = max(columns - indent, 20) if columns else None
    lines = [
        f"{outcome:{widths[0]}}  {gate:{widths[1]}}  {_wrapped(reason, room, indent)}" for outcome, gate, reason in rows
    ]
    differing = judgement.differing if isinstance(judgement, ComparisonReport) else ()
    if differing:
        lines += ["", "prompts whose scores differ:", *(str(each) for each in differing)]
    return "\n".join([f"{judgement.name}: {judgement.outcome} {_of_what(judgement)}", *lines]) + "\n"


def _wrapped(reason: str, room: int | None, indent: int) -> str:
    if room is None:
        return reason
    return f"\n{' ' * indent}".join(textwrap.wrap(reason, room, break_on_hyphens=False)) or reason


def as_json(judgement: CheckReport) -> str:
    """One document, without what is for charts."""
    return judgement.model_dump_json(indent=2, exclude={"verdicts": {"__all__": {"auxiliary"}}}) + "\n"


def as_junit(judgement: CheckReport) -> str:
    """One test case for each gate."""
    judged = [case_of(verdict, group="tidegate.gates") for verdict in judgement.verdicts]
    others = [case("tidegate.gates", gate, Skipped, reason=NOT_ASKED) for gate in judgement.not_asked]
    begun, ended = judgement.since or 0.0, judgement.until or 0.0
    since = _moment(begun) if judgement.since is not None else None
    return junit_xml({judgement.name: [*judged, *others]}, seconds=ended - begun, since=since)


def as_markdown(judgement: CheckReport) -> str:
    """A heading and a table, for a summary or a comment."""
    lines = [f"### {table_cell(judgement.name)}: {judgement.outcome}", "", "| gate | verdict | why |", "|---|---|---|"]
    lines += [
        f"| {table_cell(verdict.gate)} | {_emphasized(verdict.outcome)} | {table_cell(verdict.reason)} |"
        for verdict in judgement.verdicts
    ]
    lines += [f"| {table_cell(gate)} | not asked | {NOT_ASKED} |" for gate in judgement.not_asked]
    sentence = _of_what(judgement)
    return "\n".join([*lines, "", f"{sentence[0].upper()}{sentence[1:]}.", ""])


REPORTS: Mapping[str, Callable[[CheckReport], str]] = {
    "text": as_text,
    "json": as_json,
    "junit": as_junit,
    "markdown": as_markdown,
}
"""By the name that `--output` has for it."""


def _of_what(judgement: CheckReport) -> str:
    if judgement.since is None or judgement.until is None:
        return "without any evidence"
    begin, end = _moment(judgement.since), _moment(judgement.until)
    last = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    batches = f"{judgement.batches:,} {judgement.unit[judgement.batches != 1]}"
    return f"after {batches}, {begin:%Y-%m-%d %H:%M:%S} to {last} UTC"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _emphasized(outcome: GateOutcome) -> str:
    return str(outcome) if outcome is GateOutcome.PASS else f"**{outcome}**"
