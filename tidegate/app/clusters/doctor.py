"""What is wrong with the regions of a fleet of clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipelines.authority.engine_images import pem_of
from pipelines.plan.region_objects import guard_image, region_objects
from pipelines.plan.scrapes import asked_of_prometheus, scraping_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trusted
from rollouts.doctor.diagnosis import diagnose
from rollouts.doctor.gather import WORKFLOWS_NAMESPACE, DiagnosisTarget, required_access
from rollouts.doctor.model import Finding, Severity
from rollouts.manifests.manifest import Release
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.app.clusters.git import git_findings
from tidegate.app.plan import require_files_for_pods
from tidegate.app.process import note
from tidegate.app.wiring.fleets import cluster_client, prometheus_of, require_contexts
from tidegate.app.wiring.specs import read_spec
from tidegate.app.wiring.stores import mlflow_addresses, open_deliveries, open_registry
from tidegate.app.wiring.trust import named_trust, trusted_images
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, OutsideError, TidegateError, UsageError
from tidegate.core.model import Json

GIT = "git"
"""Stands in a region's place for the repository, which all regions share."""


@dataclass(frozen=True)
class DoctorOptions:
    """What the command line says."""

    select: Callable[[Delivery], tuple[str, ...]]
    """The regions of a spec to look at; none for all."""
    controller_namespace: str
    state: Path
    tracking_uri: str | None


@dataclass(frozen=True)
class RegionCheck:
    """What became of one region: its findings, or why it could not be looked at."""

    findings: tuple[Finding, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class _Spec:
    """A spec, with what stands next to it and what the registry knows of it."""

    spec: Delivery
    fleet: ArgoFleetSpec
    trusted: Trusted
    last: datetime | None
    """When a delivery of it last began."""

    def patient(self, region: str, controller_namespace: str) -> DiagnosisTarget:
        """Whom to look at there."""
        return DiagnosisTarget(
            region=region,
            delivery=self.spec.metadata.name,
            controller_namespace=controller_namespace,
            questions=asked_of_prometheus(self.spec, region),
            tenant=self.fleet.regions[region].prometheus.tenant or "",
            scraping=scraping_of(self.spec, region),
            rights=required_access(
                self.fleet,
                self.spec.metadata.name,
                region,
                guard_image(self.spec),
                samples=self.spec.samples is not None,
            ),
            guard=guard_image(self.spec),
            workflows_in=_workflows_in(self.spec, self.fleet),
            objects=_objects(self.spec, self.fleet, region, self.trusted),
            last_delivery=self.last,
        )


@dataclass(frozen=True)
class Examination:
    """What was found in each region."""

    spec: Delivery
    regions: Mapping[str, RegionCheck]
    """By region; and of the repository under `GIT`, where the spec has one."""
    registry_answers: bool

    @property
    def exit_code(self) -> ExitCode:
        """A region that could not be looked at counts for more than what was found in others."""
        if any(one.problem for one in self.regions.values()):
            return ExitCode.OUTSIDE
        findings = (finding for one in self.regions.values() for finding in one.findings)
        worse = any(finding.severity is not Severity.NOTE for finding in findings)
        return ExitCode.ROLLED_BACK if worse else ExitCode.DELIVERED


def examine(spec_path: Path, asked: DoctorOptions) -> Examination:
    """Look at every region at once. Changes nothing.

    Raises:
        UsageError: the spec's fleet is on this machine, or has no such region.
    """
    spec = read_spec(spec_path)
    fleet: object = spec.fleet
    if not isinstance(fleet, ArgoFleetSpec):
        raise UsageError(
            "`doctor` examines clusters; this spec has its fleet on this machine", hint="set `fleet.kind: argo`"
        )
    wanted = asked.select(spec) or tuple(fleet.regions)
    require_contexts(spec, wanted)
    last, answers = _last_delivery(spec, asked)
    given = _Spec(spec, fleet, named_trust(spec_path.parent), last)
    regions = dict(asyncio.run(_look(given, wanted, asked.controller_namespace)))
    if spec.git:
        regions[GIT] = RegionCheck(git_findings(spec))
    return Examination(spec, regions, answers)


def require_files_of_workflow(seen: Examination, asked: DoctorOptions) -> None:
    """Ask the registry, where it answers, whether the pods of the spec's workflow can read the next version's files.

    Raises:
        UsageError: they cannot.
    """
    if seen.spec.workflow and asked.tracking_uri and seen.registry_answers:
        require_files_for_pods(seen.spec, seen.spec.model.origin, asked.state, asked.tracking_uri)


async def _look(given: _Spec, regions: tuple[str, ...], controller_namespace: str) -> Mapping[str, RegionCheck]:
    looks = (_look_at(given.fleet, given.patient(region, controller_namespace)) for region in regions)
    return dict(zip(regions, await asyncio.gather(*looks), strict=True))


async def _look_at(fleet: ArgoFleetSpec, patient: DiagnosisTarget) -> RegionCheck:
    """One region on its own: another's absence is not its."""
    place, prometheus = fleet.regions[patient.region], prometheus_of(fleet, patient.region)
    try:
        async with cluster_client(place.context, fleet.namespace) as cluster:
            return RegionCheck(await diagnose(cluster, prometheus, patient, SystemClock()))
    except TidegateError as error:
        return RegionCheck(problem=str(error))


def _workflows_in(spec: Delivery, fleet: ArgoFleetSpec) -> tuple[str, ...]:
    """Argo Workflows' own namespace, or that of the workflows, which a controller of their own may serve."""
    if spec.workflow is None:
        return ()
    return tuple(dict.fromkeys((WORKFLOWS_NAMESPACE, spec.workflow.namespace or fleet.namespace)))


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


def _last_delivery(spec: Delivery, asked: DoctorOptions) -> tuple[datetime | None, bool]:
    """When the registry last saw one begin, and whether it answers; where there is no registry here, no one knows."""
    at = mlflow_addresses(asked.state, asked.tracking_uri)
    if at.are_two:
        note(str(at))
    if asked.tracking_uri is None and not (asked.state / "mlflow.db").exists():
        return None, True
    try:
        last = next(iter(open_deliveries(asked.state, asked.tracking_uri).deliveries(spec.model.name, last=1)), None)
    except TidegateError as error:
        note(f"neither the last delivery nor the place of the version's files is known: {error}")
        return None, False
    if at.are_two and not _versions_answer(spec, asked):
        return last.started if last else None, False
    return last.started if last else None, True


def _versions_answer(spec: Delivery, asked: DoctorOptions) -> bool:
    """Whether the store of the versions, which is another than that of the deliveries, can be asked."""
    try:
        open_registry(asked.state, asked.tracking_uri).newest(spec.model.name)
    except OutsideError as error:
        note(f"no model version can be looked up: {error}")
        return False
    except TidegateError as error:
        note(str(error))
    return True
