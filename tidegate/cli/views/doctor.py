"""A doctor's findings as a person reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from pipelines.views.wording import by_reason
from rollouts.doctor.model import Finding, Severity

FINDING_MARKS = {Severity.ERROR: ("✗", "bold red"), Severity.WARNING: ("!", "yellow"), Severity.NOTE: ("·", "dim")}


def findings_text(regions: Mapping[str, tuple[Sequence[Finding], str]]) -> Text:
    """Region after region: its findings, the worst first; then those that could not be looked at, and why."""
    away = by_reason({name: problem for name, (_, problem) in regions.items() if problem})
    lines = [
        *(line for name, (findings, problem) in regions.items() if not problem for line in _region(name, findings)),
        *(Text.assemble((", ".join(names), "bold"), ": ", problem) for problem, names in away.items()),
    ]
    return Text("\n").join(lines)


def _region(name: str, findings: Sequence[Finding]) -> Iterator[Text]:
    yield Text.assemble((name, "bold"), ": ", _summary(findings))
    for finding in findings:
        mark, style = FINDING_MARKS[finding.severity]
        what = Text(finding.what, style="" if finding.severity is Severity.NOTE else style)
        yield Text.assemble("  ", (mark, style), " ", what, f" ({finding.code})")
        yield from (Text.assemble(("      seen:  ", "dim"), one) for one in finding.evidence)
        yield Text.assemble(("      cause: ", "dim"), finding.cause)
        yield Text.assemble(("      remediation:  ", "dim"), finding.remediation)


def _summary(findings: Sequence[Finding]) -> str:
    count = Counter(finding.severity for finding in findings)
    told = [f"{count[kind]} {kind}{'s' if count[kind] != 1 else ''}" for kind in Severity if count[kind]]
    return ", ".join(told) or "nothing is wrong"
