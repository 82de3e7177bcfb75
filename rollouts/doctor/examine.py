"""Every check over one snapshot, in the order in which a person would look."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.doctor.checking import Check
from rollouts.doctor.checks import (
    access,
    analysis,
    belonging,
    capacity,
    controller,
    definitions,
    evidence,
    network,
    plugins,
    pods,
    progress,
    routes,
    services,
    steps,
    workload,
)
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot, Unread

NOT_LOOKED_AT = Ailment(
    code="not-looked-at",
    severity=Severity.NOTE,
    cause="the credentials of this region's context may not read it, so nothing is known of it",
    cure="run the doctor as somebody who may, to have these looked at too",
)

_MODULES = (
    belonging,
    definitions,
    controller,
    plugins,
    access,
    progress,
    steps,
    services,
    routes,
    network,
    pods,
    capacity,
    workload,
    analysis,
    evidence,
)
CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in module.CHECKS)
AILMENTS: tuple[Ailment, ...] = (*(ailment for module in _MODULES for ailment in module.AILMENTS), NOT_LOOKED_AT)

_WEIGHT = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def examine(snapshot: Snapshot) -> tuple[Finding, ...]:
    """All findings, errors first; within a severity in the order of the checks."""
    found = [finding for check in CHECKS for finding in check(snapshot)]
    found += _not_looked_at(snapshot)
    return tuple(sorted(found, key=lambda finding: _WEIGHT[finding.severity]))


def _not_looked_at(snapshot: Snapshot) -> Iterator[Finding]:
    hidden = [resource.plural for resource, reading in snapshot.objects.items() if reading.unread is Unread.FORBIDDEN]
    if not snapshot.controller.readable:
        hidden.append(f"the controller's namespace {snapshot.controller.namespace}")
    elif snapshot.controller.config_unread:
        hidden.append("the controller's configuration")
    hidden += [f"the proxies of Gateway {one.name}" for one in snapshot.gateways if not one.readable]
    if hidden:
        yield NOT_LOOKED_AT.found(f"{len(hidden)} kinds of objects were not looked at", ", ".join(hidden))
