"""`gate check`: what every gate of a file says of evidence, in a file or in a Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gates.model import ArmKey
from gates.reports.check_report import CheckReport
from gates.reports.evidence import judge_file, judge_windows
from gates.sessions.model import refuse_one_version
from pipelines.judging.gate_sets import read_gates
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


def check_prometheus(
    gates: Path,
    url: str,
    access: Path | None,
    *,
    region: str,
    stable: str,
    canary: str,
    since: timedelta,
    session: Path | None,
    within: timedelta | None,
) -> CheckReport:
    """Judge what a Prometheus has of two versions.

    Args:
        gates: the file of gates.
        url: of the Prometheus.
        access: the file that says who asks it.
        region: as series name it; empty where they name none.
        stable: how series name the stable version.
        canary: how they name the canary.
        since: how far back.
        session: the file of a test that several calls carry on; None where one call is all.
        within: from the start of that test until what has no verdict is inconclusive.

    Raises:
        SpecError: a gate is wrong, or the session is.
        UsageError: a version or the region is not said.
        OutsideError: Prometheus does not answer.
    """
    # Not above: a file of evidence needs no client.
    from gates.adapters.prometheus_queries import evidence_at
    from gates.sessions.continued import continued

    judged = read_gates(gates, of_prometheus=True)
    if not (stable and canary and (region or not judged.by_region)):
        what, options = ("a region and ", "--region, --stable") if judged.by_region else ("", "--stable")
        raise UsageError(f"--prometheus needs {what}two versions", hint=f"give {options} and --canary")
    refuse_one_version(stable, canary)
    terms = judged.terms("proxy")
    source = evidence_at(endpoint_at(url, access), judged.sources, terms)
    arms = (
        ArmKey(region=region, role="stable", version=stable),
        ArmKey(region=region, role="canary", version=canary),
    )
    if session is None:
        until = datetime.now(UTC) - source.settles_within
        test = judge_windows(terms, source, arms, until, since=since, look=judged.look)
        return test.report(judged.name, not_asked=judged.not_asked)
    return continued(
        judged.name,
        terms,
        arms,
        source,
        file=session,
        clock=SystemClock(),
        look=judged.look,
        since=since,
        within=within,
        not_asked=judged.not_asked,
    )
