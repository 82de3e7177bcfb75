"""Whether tidegate may do what a delivery needs, and whether our clocks agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.kube.model import AccessQuestion

ACCESS_DENIED = Ailment(
    code="access-denied",
    severity=Severity.ERROR,
    cause="the credentials of this region's context may not do what a delivery has to do",
    cure="bind them to the Role that `tidegate rollout render` writes",
)
CLOCK_SKEW = Ailment(
    code="clock-skew",
    severity=Severity.WARNING,
    cause="this machine's clock and the API server's differ: windows of evidence and deadlines are off by as much",
    cure="let both follow one time server",
)
AILMENTS = (ACCESS_DENIED, CLOCK_SKEW)

TOLERATED = timedelta(seconds=5)
"""Less than a scrape interval; the Date header itself is in whole seconds."""


def rights(snapshot: Snapshot) -> Iterator[Finding]:
    """Every right that a delivery needs."""
    denied = [access.question for access in snapshot.access if not access.allowed]
    if denied:
        yield ACCESS_DENIED.found(
            f"{len(denied)} of {len(snapshot.access)} rights are missing in namespace {snapshot.namespace}",
            *(f"may not {_spelled(question)}" for question in denied),
        )


def _spelled(question: AccessQuestion) -> str:
    """As `kubectl auth can-i` takes it, such as `patch rollouts/status support-llm`."""
    plural = question.resource.plural
    kind = f"{plural}/{question.subresource}" if question.subresource else plural
    return " ".join(part for part in (question.verb, kind, question.name) if part)


def clock(snapshot: Snapshot) -> Iterator[Finding]:
    """The API server's Date header is near our own clock."""
    skew = snapshot.skew
    if skew is not None and abs(skew) > TOLERATED:
        which = "ahead of" if skew > timedelta() else "behind"
        seconds = abs(skew).total_seconds()
        yield CLOCK_SKEW.found(f"the API server's clock is {seconds:.0f} s {which} this machine's", "its Date header")


CHECKS = (rights, clock)
