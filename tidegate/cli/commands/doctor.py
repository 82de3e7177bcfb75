"""`tidegate doctor`: what is wrong with the regions of a fleet of clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pipelines.asked_of_prometheus import asked_of_prometheus, scraping_of
from pipelines.region_objects import region_objects
from pipelines.spec import Delivery
from rollouts.adapters.http import Http
from rollouts.adapters.kube.connect import connect
from rollouts.adapters.prometheus_query import PrometheusQuery
from rollouts.doctor import Finding, Patient, Severity, diagnose
from rollouts.doctor.rights import questions_of
from rollouts.errors import FleetError
from rollouts.kube.model import Json
from rollouts.manifests.release import Release
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.cli.commands.doctor_view import report
from tidegate.cli.compose import open_deliveries, read_spec
from tidegate.cli.console import PlainConsole
from tidegate.cli.output import note, print_json
from tidegate.cli.pods_reach import require_files_for_pods
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ExitCode, TidegateError, UsageError


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    regions: tuple[str, ...]
    """All of the spec when empty."""
    controller_namespace: str
    state: Path
    tracking_uri: str | None


@dataclass(frozen=True)
class Seen:
    """What became of one region: its findings, or why it could not be looked at."""

    findings: tuple[Finding, ...] = ()
    problem: str = ""


def run(spec_path: Path, asked: Asked, *, as_json: bool) -> int:
    """Look at every region at once, tell, and return what the worst of it means."""
    spec = read_spec(spec_path)
    fleet: object = spec.fleet
    if not isinstance(fleet, ArgoFleetSpec):
        raise UsageError("the doctor looks at clusters, and this fleet is none", hint="set `fleet.kind: argo`")
    wanted = _regions(fleet, asked.regions)
    seen = asyncio.run(_look(spec, fleet, wanted, asked))
    if as_json:
        print_json([_as_data(region, one) for region, one in seen.items()])
    else:
        PlainConsole(soft_wrap=True).print(report({name: (one.findings, one.problem) for name, one in seen.items()}))
    # Last: what is wrong with the regions is worth knowing all the same.
    if spec.workflow and asked.tracking_uri:
        require_files_for_pods(spec, spec.model.origin, asked.state, asked.tracking_uri)
    return int(_exit_code(seen))


def _regions(fleet: ArgoFleetSpec, asked: tuple[str, ...]) -> tuple[str, ...]:
    known = tuple(fleet.regions)
    for region in asked:
        if region not in known:
            raise UsageError(f"--region: found {region!r}; expected one of {', '.join(known)}")
    return asked or known


async def _look(spec: Delivery, fleet: ArgoFleetSpec, regions: tuple[str, ...], asked: Asked) -> Mapping[str, Seen]:
    last = _last_delivery(spec, asked)
    looks = (_look_at(spec, fleet, region, asked.controller_namespace, last) for region in regions)
    return dict(zip(regions, await asyncio.gather(*looks), strict=True))


async def _look_at(
    spec: Delivery, fleet: ArgoFleetSpec, region: str, controller_namespace: str, last: datetime | None
) -> Seen:
    """One region on its own: another's absence is not its."""
    place, clock, name = fleet.regions[region], SystemClock(), spec.metadata.name
    patient = Patient(
        region=region,
        delivery=name,
        controller_namespace=controller_namespace,
        questions=asked_of_prometheus(spec, region),
        scraping=scraping_of(spec, region),
        rights=questions_of(fleet, name, region),
        objects=_objects(spec, fleet, region),
        last_delivery=last,
    )
    try:
        cluster = connect(place.context or None, clock=clock, namespace=fleet.namespace)
    except TidegateError as error:
        return Seen(problem=str(error))
    try:
        async with Http() as http:
            return Seen(await diagnose(cluster, PrometheusQuery(place.prometheus.url, http), patient, clock))
    except FleetError as error:
        return Seen(problem=str(error))
    finally:
        await cluster.close()


def _objects(spec: Delivery, fleet: ArgoFleetSpec, region: str) -> tuple[Json, ...]:
    """What would be brought there; nothing where it cannot be rendered, which `rollout render` tells."""
    # Which engine it is changes no name.
    release = Release(
        delivery=spec.metadata.name,
        region=region,
        version="0",
        digest="",
        image="none",
        accelerator=str(spec.engine.accelerator),
    )
    try:
        return region_objects(spec, fleet, release).objects
    except UsageError as error:
        note(f"{region}: whose the objects there are was not looked at: {error}")
        return ()


def _last_delivery(spec: Delivery, asked: Asked) -> datetime | None:
    """When the registry last saw one begin; where there is no registry here, nobody knows."""
    if asked.tracking_uri is None and not (asked.state / "mlflow.db").exists():
        return None
    try:
        last = next(iter(open_deliveries(asked.state, asked.tracking_uri).deliveries(spec.model.name, last=1)), None)
    except TidegateError as error:
        note(f"when the last delivery was is not known: {error}")
        return None
    return last.started if last else None


def _as_data(region: str, seen: Seen) -> dict[str, object]:
    findings = [finding.model_dump(mode="json") for finding in seen.findings]
    return {"region": region, "reachable": not seen.problem, "problem": seen.problem or None, "findings": findings}


def _exit_code(seen: Mapping[str, Seen]) -> ExitCode:
    """A region that could not be looked at counts for more than what was found in others."""
    if any(one.problem for one in seen.values()):
        return ExitCode.OUTSIDE
    worse = any(finding.severity is not Severity.NOTE for one in seen.values() for finding in one.findings)
    return ExitCode.ROLLED_BACK if worse else ExitCode.DELIVERED
