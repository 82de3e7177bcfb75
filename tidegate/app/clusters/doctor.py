"""What is wrong with the regions of a fleet of clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.adapters.fleets import cluster_client, prometheus_of, require_contexts
from pipelines.adapters.specs import read_spec
from pipelines.adapters.trust import named_trust, trusted_images
from pipelines.authority.engine_images import pem_of
from pipelines.plan.region_objects import guard_image, region_objects
from pipelines.plan.scrapes import asked_of_prometheus, scraping_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trusted
from rollouts.doctor.diagnosis import diagnose
from rollouts.doctor.gather import required_access
from rollouts.doctor.model import DiagnosisTarget, Finding, Severity
from rollouts.manifests.manifest import Release
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.app.git.preview import refuse_unreadable_sync, refuse_unwritable_git
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, TidegateError, UsageError
from tidegate.core.model import Json
from tidegate.core.process import note

GIT = "git"
"""Stands in a region's place for the repository, which all regions share."""


@dataclass(frozen=True)
class RegionCheck:
    """What became of one region: its findings, or why it could not be looked at."""

    findings: tuple[Finding, ...] = ()
    problem: str = ""


def examine(
    spec_path: Path, select: Callable[[Delivery], tuple[str, ...]], controller_namespace: str
) -> Mapping[str, RegionCheck]:
    """Look at every region at once, and at the repository under `GIT` where the spec has one. Changes nothing.

    Args:
        spec_path: of a delivery to clusters.
        select: the regions of a spec to look at; none for all.
        controller_namespace: of Argo Rollouts.

    Raises:
        UsageError: the spec's fleet is on this machine, or has no such region.
    """
    spec = read_spec(spec_path)
    fleet: object = spec.fleet
    if not isinstance(fleet, ArgoFleetSpec):
        raise UsageError(
            "`doctor` examines clusters; this spec has its fleet on this machine", hint="set `fleet.kind: argo`"
        )
    wanted = select(spec) or tuple(fleet.regions)
    require_contexts(spec, wanted)
    trusted = named_trust(spec_path.parent)
    targets = [_target(spec, fleet, region, trusted, controller_namespace) for region in wanted]
    regions = dict(zip(wanted, asyncio.run(_look(fleet, targets)), strict=True))
    if spec.git:
        regions[GIT] = RegionCheck(_git_findings(spec))
    return regions


def exit_code(regions: Mapping[str, RegionCheck]) -> ExitCode:
    """A region that could not be looked at counts for more than what was found in others."""
    if any(one.problem for one in regions.values()):
        return ExitCode.OUTSIDE
    worse = any(finding.severity is not Severity.NOTE for one in regions.values() for finding in one.findings)
    return ExitCode.ROLLED_BACK if worse else ExitCode.DELIVERED


def _target(
    spec: Delivery, fleet: ArgoFleetSpec, region: str, trusted: Trusted, controller_namespace: str
) -> DiagnosisTarget:
    guard = guard_image(spec)
    return DiagnosisTarget(
        region=region,
        delivery=spec.metadata.name,
        controller_namespace=controller_namespace,
        questions=asked_of_prometheus(spec, region),
        scraping=scraping_of(spec, region),
        rights=required_access(fleet, spec.metadata.name, region, guard, samples=spec.samples is not None),
        guard=guard,
        objects=_objects(spec, fleet, region, trusted),
    )


async def _look(fleet: ArgoFleetSpec, targets: Sequence[DiagnosisTarget]) -> list[RegionCheck]:
    return await asyncio.gather(*(_look_at(fleet, target) for target in targets))


async def _look_at(fleet: ArgoFleetSpec, target: DiagnosisTarget) -> RegionCheck:
    """One region on its own: another's absence is not its."""
    place, prometheus = fleet.regions[target.region], prometheus_of(fleet, target.region)
    try:
        async with cluster_client(place.context, fleet.namespace) as cluster:
            return RegionCheck(await diagnose(cluster, prometheus, target, SystemClock()))
    except TidegateError as error:
        return RegionCheck(problem=str(error))


def _objects(spec: Delivery, fleet: ArgoFleetSpec, region: str, trusted: Trusted) -> tuple[Json, ...]:
    """What would be brought there; nothing where it cannot be rendered, which `rollout render` tells."""
    # Which engine it is changes no name.
    release = Release(
        delivery=spec.metadata.name,
        region=region,
        version="0",
        digest="",
        image="none",
        accelerator=str(spec.engine.accelerator),
        public_keys=pem_of(trusted_images(trusted)),
    )
    try:
        return region_objects(spec, fleet, release, repositories=trusted.trust.engines.images).objects
    except UsageError as error:
        note(f"{region}: whose the objects there are was not looked at: {error}")
        return ()


def _git_findings(spec: Delivery) -> tuple[Finding, ...]:
    """None where a commit could be pushed and its sync be read, or the spec names no repository."""
    found = []
    for refuse in (refuse_unwritable_git, refuse_unreadable_sync):
        try:
            refuse(spec)
        except TidegateError as error:
            found.append(_finding(error))
    return tuple(found)


def _finding(error: TidegateError) -> Finding:
    return Finding(
        code="git",
        severity=Severity.ERROR,
        what=error.message,
        evidence=(),
        cause="a commit could not be pushed, or whether it was applied could not be read: a delivery does not begin",
        remediation=error.hint or "correct what its own words name, under `git` in the spec or in the repository",
    )
