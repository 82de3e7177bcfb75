"""Every check over a snapshot, in the order in which a person would look; and the diagnosis of a region.

A diagnosis takes two snapshots and reports only findings present in both, so that a reconcile in progress raises no
false alarm.
"""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.checks import (
    access,
    analysis,
    controller,
    pods,
    prometheus,
    rollout,
    routes,
    services,
    setup,
    workload,
)
from rollouts.doctor.gather import DiagnosisTarget, gather
from rollouts.doctor.model import Check, Finding, Inspection, Severity, Snapshot, Unread
from rollouts.doctor.ports import PrometheusReader, RegionReader
from tidegate.core.clock import Clock

NOT_LOOKED_AT = Check(
    code="not-looked-at",
    severity=Severity.NOTE,
    cause="the credentials of this region's context may not read it, so nothing is known of it",
    remediation="run the doctor as somebody who may, to have these looked at too",
)

_MODULES = (setup, controller, access, rollout, services, routes, pods, workload, analysis, prometheus)
INSPECTIONS: tuple[Inspection, ...] = tuple(each for module in _MODULES for each in module.INSPECTIONS)
CHECKS: tuple[Check, ...] = (
    *(check for module in _MODULES for check in module.CHECKS),
    NOT_LOOKED_AT,
)

_WEIGHT = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def examine(snapshot: Snapshot) -> tuple[Finding, ...]:
    """All findings, errors first; within a severity in the order of the checks."""
    found = [finding for inspect in INSPECTIONS for finding in inspect(snapshot)]
    found += _not_looked_at(snapshot)
    return tuple(sorted(found, key=lambda finding: _WEIGHT[finding.severity]))


def _not_looked_at(snapshot: Snapshot) -> Iterator[Finding]:
    hidden = [resource.plural for resource, reading in snapshot.objects.items() if reading.unread is Unread.FORBIDDEN]
    if not snapshot.controller.readable:
        hidden.append(f"the controller's namespace {snapshot.controller.namespace}")
    elif snapshot.controller.config_unread:
        hidden.append("the controller's configuration")
    if snapshot.workflows_unread:
        hidden.append("Argo Workflows' configuration")
    hidden += [f"the proxies of Gateway {one.name}" for one in snapshot.gateways if not one.readable]
    if hidden:
        yield NOT_LOOKED_AT.found(f"{len(hidden)} kinds of objects were not looked at", ", ".join(hidden))


BETWEEN_LOOKS_SECONDS = 5.0
"""A controller that is well has written everything that belongs together within a second or two."""


async def diagnose(
    region: RegionReader, metrics: PrometheusReader | None, target: DiagnosisTarget, clock: Clock
) -> tuple[Finding, ...]:
    """What is wrong with the region, the worst first; of what is more than a note, what two looks have found.

    Raises:
        FleetError: when the API server does not answer or does not know us.
    """
    first = examine(await gather(region, metrics, target, clock))
    seen = {finding.code for finding in first if finding.severity is not Severity.NOTE}
    if not seen:
        return first
    await clock.sleep(BETWEEN_LOOKS_SECONDS)
    second = examine(await gather(region, metrics, target, clock))
    return tuple(finding for finding in second if finding.severity is Severity.NOTE or finding.code in seen)
