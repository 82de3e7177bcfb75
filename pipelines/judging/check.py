"""What every gate of a file says of evidence: of batches in a file, or of two versions in a Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from gates.reports.check_report import CheckReport
from gates.reports.evidence import STDIN, judge_evidence, lines_in
from pipelines.judging.gate_sets import GateSet, read_gates
from pipelines.judging.questions import wrong
from tidegate.core.access import PrometheusEndpoint, endpoint_at
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from gates.trials import Heard, Judge

Since = timedelta | datetime | None
"""So far back; since a time; None for since the canary's series began."""


def check_file(gates: Path, evidence: Path, *, tell: Callable[[str], None]) -> CheckReport:
    """Judge the batches of a file; `-` is stdin. `tell` hears of batches that no gate listens to.

    Raises:
        SpecError: a gate or a line of the evidence is wrong.
    """
    judged = read_gates(gates)
    file, terms = "stdin" if evidence == STDIN else str(evidence), judged.terms("users")
    report, unasked = judge_evidence(terms, lines_in(evidence), file=file, name=judged.name, not_asked=judged.not_asked)
    for source in sorted(unasked):
        tell(f"no gate listens to `{source}`, only to `users`; name it under `sources` in a file of kind Gates")
    return report


def judge_of(
    gates: GateSet,
    prometheus: PrometheusEndpoint,
    *,
    within: timedelta,
    service: str = "",
    changed: Heard = lambda *_: None,
) -> Judge:
    """Who judges trials by these gates, as `gates.trials.Judge`; asks nothing yet."""
    # Not above: a file of evidence needs no client.
    from gates.adapters.prometheus import PrometheusSource
    from gates.analyses.queries import asking_prometheus
    from gates.trials import Judge

    terms = gates.terms("proxy")
    source = PrometheusSource(prometheus, sources=gates.sources, gates=asking_prometheus(terms.settings))
    return Judge(terms, gates.look, source, SystemClock(), service=service, within=within, changed=changed)


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
        OutsideError: Prometheus does not answer, or has no series of an arm.
    """
    from gates.trials import Question

    judged = read_gates(gates, of_prometheus=True)
    if not (stable and canary and (region or not judged.by_region)):
        what, options = ("a region and ", "--region, --stable") if judged.by_region else ("", "--stable")
        raise UsageError(f"--prometheus needs {what}two versions", hint=f"give {options} and --canary")
    if isinstance(since, timedelta):
        within = since - since % judged.look
    judge = judge_of(judged, endpoint_at(url, access), within=within)
    begins = judge.now - within if isinstance(since, timedelta) else since
    try:
        question = Question(service=judged.name, stable=stable, canary=canary, region=region, since=begins)
    except ValidationError as error:
        raise wrong(error, Question) from error
    found = judge.judged(question)
    return CheckReport(
        name=judged.name,
        outcome=found.decides.outcome,
        batches=found.windows,
        since=found.since.timestamp() if found.windows else None,
        until=found.until and found.until.timestamp(),
        verdicts=tuple(found.verdicts),
        not_asked=judged.not_asked,
    )
