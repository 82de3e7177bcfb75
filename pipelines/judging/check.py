"""`gate check`: what every gate of a file says of evidence, in a file or in a Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from gates.reports.check_report import CheckReport, as_lines
from gates.reports.evidence import judge_file, judge_windows
from pipelines.judging.gate_sets import read_gates
from pipelines.judging.questions import wrong
from tidegate.core.access import endpoint_at
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError


def check_file(gates: Path, evidence: Path, *, tell: Callable[[str], None]) -> CheckReport:
    """Judge the batches of a file; `-` is stdin. `tell` hears of batches that no gate listens to.

    Raises:
        SpecError: a gate or a line of the evidence is wrong.
    """
    judged = read_gates(gates)
    test = judge_file(judged.terms("users"), evidence)
    for source in sorted(test.unasked):
        tell(f"no gate listens to `{source}`, only to `users`; name it under `sources` in a file of kind Gates")
    return test.report(judged.name, not_asked=judged.not_asked)


Since = timedelta | datetime | None
"""So far back; since a time; None for since the canary's series began."""


def check_prometheus(
    gates: Path,
    url: str,
    access: Path | None,
    *,
    region: str,
    stable: str,
    canary: str,
    since: Since,
    within: timedelta,
) -> CheckReport:
    """Judge what a Prometheus has of two versions.

    Args:
        gates: the file of gates.
        url: of the Prometheus.
        access: the file that says who asks it.
        region: as series name it; empty where they name none.
        stable: how series name the stable version.
        canary: how they name the canary.
        since: where the evidence begins. So far back it is another test at each call; else all calls are one.
        within: how long such a test may take; then what has no verdict is inconclusive.

    Raises:
        SpecError: a gate is wrong.
        UsageError: a version or the region is not said.
        OutsideError: Prometheus does not answer.
    """
    # Not above: a file of evidence needs no client.
    from gates.adapters.prometheus import evidence_at
    from gates.trials import Judge, Question

    judged = read_gates(gates, of_prometheus=True)
    if not (stable and canary and (region or not judged.by_region)):
        what, options = ("a region and ", "--region, --stable") if judged.by_region else ("", "--stable")
        raise UsageError(f"--prometheus needs {what}two versions", hint=f"give {options} and --canary")
    terms = judged.terms("proxy")
    source = evidence_at(endpoint_at(url, access), judged.sources, terms)
    moment = since if isinstance(since, datetime) else None
    try:
        question = Question(service=judged.name, stable=stable, canary=canary, region=region, since=moment)
    except ValidationError as error:
        raise wrong(error, Question) from error
    judge = Judge(terms, judged.look, source, SystemClock(), within=within)
    judge.refuse(question)
    if isinstance(since, timedelta):
        until = datetime.now(UTC) - source.settles_within
        test = judge_windows(terms, source, question.arms, until, since=since, look=judged.look)
        return test.report(judged.name, not_asked=judged.not_asked)
    found = judge.judged(question)
    return CheckReport(
        name=judged.name,
        outcome=found.decides.outcome,
        batches=found.windows,
        since=found.since.timestamp(),
        until=found.until and found.until.timestamp(),
        verdicts=as_lines(found.verdicts),
        not_asked=judged.not_asked,
    )
