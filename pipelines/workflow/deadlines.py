"""How long each step may take before its pod is ended: longer than the step itself would ever wait. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from pipelines.approval_spec import FreezeSpec
from pipelines.approvals import patience
from pipelines.hold import FROZEN
from pipelines.model import StageName, Step
from pipelines.patience_spec import PatienceSpec
from pipelines.spec import Delivery
from rollouts.manifests.spec import ArgoFleetSpec

SLACK = timedelta(minutes=15)
"""For a pod's own start, for bringing a version's files, and for a registry that is away for as long as is usual."""
OFFLINE = timedelta(hours=2)
"""The golden set has no limit of its own; a large one on a slow engine takes minutes."""
WEEK = timedelta(days=7)


def deadline(spec: Delivery, fleet: ArgoFleetSpec, step: Step, steps: tuple[Step, ...]) -> timedelta:
    """From the pod's start; people who are asked, and freezes, have their time within it."""
    waits = (patience(spec.approvals, asked, steps) for asked in step.approvals)
    frozen = sum(map(_length, spec.freeze), timedelta(0)) if step.stage in FROZEN else timedelta(0)
    return _working(spec, fleet, step) + silence(spec) + frozen + sum(waits, timedelta(0)) + SLACK


def closing(spec: Delivery, fleet: ArgoFleetSpec) -> timedelta:
    """Taking every region back, side by side, and a region that is silent."""
    return fleet.pod.start_within + silence(spec) + SLACK


def silence(spec: Delivery) -> timedelta:
    """Of a region's API server, and of an MLflow that is given longer than usual."""
    return spec.api_patience + max(spec.patience.registry - PatienceSpec().registry, timedelta(0))


def _working(spec: Delivery, fleet: ArgoFleetSpec, step: Step) -> timedelta:
    return sum(_parts(spec, fleet, step), timedelta(0))


def _parts(spec: Delivery, fleet: ArgoFleetSpec, step: Step) -> Iterator[timedelta]:
    # Engines start when they are deployed, when more of them are wanted, and when old ones come back.
    if step.stage in (StageName.BUILD, StageName.DEPLOY, StageName.CANARY, StageName.PROMOTE):
        yield fleet.pod.start_within
    if step.stage is StageName.OFFLINE:
        yield OFFLINE
    if step.stage is StageName.SHADOW and spec.shadow:
        yield spec.shadow.within
    if step.stage is StageName.CANARY and spec.canary:
        yield spec.canary.within
    if step.stage is StageName.BAKE:
        yield spec.regions.bake


def _length(freeze: FreezeSpec) -> timedelta:
    """A week for one that comes every week: it is never longer, and a week is what nobody waits in vain."""
    if isinstance(freeze.start.day, int) or isinstance(freeze.end.day, int):
        return WEEK
    return freeze.end.day - freeze.start.day + timedelta(days=1)
