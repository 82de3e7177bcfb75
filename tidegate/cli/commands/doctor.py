"""`tidegate doctor`: what is wrong with the regions of a fleet of clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipelines.adapters.image_engines import pem_of
from pipelines.plan.region_objects import guard_image, region_objects
from pipelines.plan.scrapes import asked_of_prometheus, scraping_of
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trusted
from rollouts.adapters.kube.client import connect
from rollouts.adapters.prometheus_query import PrometheusQuery
from rollouts.doctor import WORKFLOWS_NAMESPACE, DiagnosisTarget, Finding, Severity, diagnose
from rollouts.doctor.gather import required_access
from rollouts.errors import FleetError
from rollouts.kube.model import Json
from rollouts.manifests.manifest import Release
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.app.plan import require_files_for_pods
from tidegate.app.process import note
from tidegate.app.wiring.specs import read_spec
from tidegate.app.wiring.stores import open_deliveries
from tidegate.app.wiring.trust import trust_next_to, trusted_images
from tidegate.cli.output import OutputForm, print_data
from tidegate.cli.views.console import PlainConsole
from tidegate.cli.views.doctor import findings_text
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, TidegateError, UsageError


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
            scraping=scraping_of(self.spec, region),
            rights=required_access(self.fleet, self.spec.metadata.name, region, guard_image(self.spec)),
            guard=guard_image(self.spec),
            workflows_in=_workflows_in(self.spec, self.fleet),
            objects=_objects(self.spec, self.fleet, region, self.trusted),
            last_delivery=self.last,
        )


def examine(spec_path: Path, asked: DoctorOptions, *, output: OutputForm) -> int:
    """Look at every region at once, tell, and return what the worst of it means."""
    spec = read_spec(spec_path)
    fleet: object = spec.fleet
    if not isinstance(fleet, ArgoFleetSpec):
        raise UsageError(
            "`doctor` examines clusters; this spec has its fleet on this machine", hint="set `fleet.kind: argo`"
        )
    wanted = asked.select(spec) or tuple(fleet.regions)
    given = _Spec(spec, fleet, trust_next_to(spec_path.parent), _last_delivery(spec, asked))
    seen = asyncio.run(_look(given, wanted, asked.controller_namespace))
    if output.is_data:
        print_data([_as_data(region, one) for region, one in seen.items()], output)
    else:
        PlainConsole(soft_wrap=True).print(
            findings_text({name: (one.findings, one.problem) for name, one in seen.items()})
        )
    # Last: what is wrong with the regions is worth knowing all the same.
    if spec.workflow and asked.tracking_uri:
        require_files_for_pods(spec, spec.model.origin, asked.state, asked.tracking_uri)
    return int(_exit_code(seen))


async def _look(given: _Spec, regions: tuple[str, ...], controller_namespace: str) -> Mapping[str, RegionCheck]:
    looks = (_look_at(given.fleet, given.patient(region, controller_namespace)) for region in regions)
    return dict(zip(regions, await asyncio.gather(*looks), strict=True))


async def _look_at(fleet: ArgoFleetSpec, patient: DiagnosisTarget) -> RegionCheck:
    """One region on its own: another's absence is not its."""
    place, clock = fleet.regions[patient.region], SystemClock()
    try:
        cluster = connect(place.context or None, clock=clock, namespace=fleet.namespace)
    except TidegateError as error:
        return RegionCheck(problem=str(error))
    try:
        return RegionCheck(await diagnose(cluster, PrometheusQuery(place.prometheus.url), patient, clock))
    except FleetError as error:
        return RegionCheck(problem=str(error))
    finally:
        await cluster.close()


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


def _last_delivery(spec: Delivery, asked: DoctorOptions) -> datetime | None:
    """When the registry last saw one begin; where there is no registry here, no one knows."""
    if asked.tracking_uri is None and not (asked.state / "mlflow.db").exists():
        return None
    try:
        last = next(iter(open_deliveries(asked.state, asked.tracking_uri).deliveries(spec.model.name, last=1)), None)
    except TidegateError as error:
        note(f"when the last delivery was is not known: {error}")
        return None
    return last.started if last else None


def _as_data(region: str, seen: RegionCheck) -> dict[str, object]:
    # `cure` is the name of the last release, for one more.  # codespell:ignore cure
    findings = [
        each.model_dump(mode="json") | {"cure": each.remediation}  # codespell:ignore cure
        for each in seen.findings
    ]
    return {"region": region, "reachable": not seen.problem, "problem": seen.problem or None, "findings": findings}


def _exit_code(seen: Mapping[str, RegionCheck]) -> ExitCode:
    """A region that could not be looked at counts for more than what was found in others."""
    if any(one.problem for one in seen.values()):
        return ExitCode.OUTSIDE
    worse = any(finding.severity is not Severity.NOTE for one in seen.values() for finding in one.findings)
    return ExitCode.ROLLED_BACK if worse else ExitCode.DELIVERED
