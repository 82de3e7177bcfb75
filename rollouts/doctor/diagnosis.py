"""Every check over a snapshot, in the order in which a person would look; and the diagnosis of a region.

A diagnosis takes two snapshots and reports only findings present in both, so that a reconcile in progress raises no
false alarm.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor import access, controller, evidence, pods, rollout
from rollouts.doctor.gather import gather
from rollouts.doctor.model import Check, DiagnosisTarget, Finding, Observation, Severity, Snapshot, Unread, note
from rollouts.doctor.queries import PrometheusReader
from rollouts.kube.client import KubeClient
from tidegate.core.clock import Clock
from tidegate.core.model import Json


@note(
    "not-looked-at",
    cause="these credentials may not read it, it is in another place, or it is not there before the first delivery: "
    "nothing is known of it",
    remediation="run the doctor with more rights, with --controller-namespace, or after the first delivery",
)
def _not_looked_at(snapshot: Snapshot, _: Json) -> Iterator[Observation]:
    hidden = [kind.plural for kind in snapshot.objects if snapshot.unread(kind) is Unread.FORBIDDEN]
    namespace = snapshot.target.controller_namespace
    if snapshot.controller_pods is None:
        hidden.append(f"the controller's namespace {namespace}")
    elif controller.runs_elsewhere(snapshot):
        hidden.append(f"the controller, which works and is not in namespace {namespace}")
    askers = dict.fromkeys(answer.question.asked_by for answer in evidence.unanswered(snapshot))
    if askers and snapshot.is_empty:
        hidden.append(f"metrics of {', '.join(askers)}, which the first delivery begins to scrape")
    if hidden:
        yield f"{len(hidden)} things were not looked at", ", ".join(hidden)


CHECKS: tuple[Check, ...] = (
    *access.CHECKS,
    *controller.CHECKS,
    *rollout.CHECKS,
    *pods.CHECKS,
    *evidence.CHECKS,
    _not_looked_at,
)
"""In the order of docs/reference/doctor.md."""

_WEIGHT = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def examine(snapshot: Snapshot) -> tuple[Finding, ...]:
    """All findings, errors first; within a severity in the order of the checks."""
    found = [finding for check in CHECKS for finding in check.findings(snapshot)]
    return tuple(sorted(found, key=lambda finding: _WEIGHT[finding.severity]))


BETWEEN_LOOKS_SECONDS = 5.0
"""A healthy controller has written everything that belongs together within a second or two."""


async def diagnose(
    region: KubeClient, prometheus: PrometheusReader | None, target: DiagnosisTarget, clock: Clock
) -> tuple[Finding, ...]:
    """What is wrong with the region, errors first; of what is more than a note, what two looks have found.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    first = examine(await gather(region, prometheus, target, clock))
    seen = {finding.code for finding in first if finding.severity is not Severity.NOTE}
    if not seen:
        return first
    await clock.sleep(BETWEEN_LOOKS_SECONDS)
    second = examine(await gather(region, prometheus, target, clock))
    return tuple(finding for finding in second if finding.severity is Severity.NOTE or finding.code in seen)
