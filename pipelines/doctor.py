"""What would break a delivery: in each of its regions, in its repository, and on the way of its notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from pipelines.adapters.clusters import cluster_fleet
from pipelines.adapters.fleets import cluster_client, prometheus_of, require_contexts
from pipelines.adapters.git import git_access_for
from pipelines.adapters.services import places_of, send_by_http
from pipelines.adapters.trust import trusted_images
from pipelines.authority.engine_images import pem_of
from pipelines.plan.region_objects import region_objects, release_of
from pipelines.plan.scrapes import asked_of_prometheus, scraping_of
from pipelines.run.git import preview_git, refuse_unreadable_sync
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trusted
from pipelines.views.notifications import (
    DeliverySubject,
    Notification,
    NotificationChannel,
    NotificationKind,
    NotTaken,
    deliver_message,
)
from rollouts.doctor.diagnosis import diagnose
from rollouts.doctor.gather import required_access
from rollouts.doctor.model import DiagnosisTarget, Finding, Severity
from rollouts.errors import Unfit
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.model import Value


class RegionCheck(Value):
    """What became of one region: its findings, or why it could not be looked at."""

    findings: tuple[Finding, ...] = ()
    problem: str = ""


def check_regions(
    spec: Delivery, fleet: ClusterFleetSpec, regions: Sequence[str], trusted: Trusted, controller_namespace: str
) -> dict[str, RegionCheck]:
    """Look at every region at once. Changes nothing.

    Args:
        spec: the delivery.
        fleet: the spec's.
        regions: of the fleet.
        trusted: what the operator says of engines' images.
        controller_namespace: of Argo Rollouts.

    Raises:
        KubeconfigWrong: it has none of the contexts.
    """
    require_contexts(spec, regions)

    async def check_all() -> list[RegionCheck]:
        if not isinstance(fleet, ArgoFleetSpec):
            return await asyncio.gather(*(_check_theirs(spec, fleet, region) for region in regions))
        targets = [_target(spec, fleet, region, trusted, controller_namespace) for region in regions]
        return await asyncio.gather(*(_check(fleet, target) for target in targets))

    return dict(zip(regions, asyncio.run(check_all()), strict=True))


def _target(
    spec: Delivery, fleet: ArgoFleetSpec, region: str, trusted: Trusted, controller_namespace: str
) -> DiagnosisTarget:
    # Which engine it is changes no name.
    keys, images = pem_of(trusted_images(trusted)), trusted.trust.engines.images
    release = release_of(spec, fleet, region, public_keys=keys, repositories=images, serving=False)
    return DiagnosisTarget(
        region=region,
        delivery=spec.metadata.name,
        traffic=fleet.traffic,
        controller_namespace=controller_namespace,
        questions=asked_of_prometheus(spec, region),
        scraping=scraping_of(spec, region),
        rights=required_access(fleet, release),
        objects=region_objects(spec, fleet, release).objects,
    )


async def _check(fleet: ArgoFleetSpec, target: DiagnosisTarget) -> RegionCheck:
    """One region on its own: another's absence is not its."""
    try:
        async with cluster_client(fleet.regions[target.region].context, fleet.namespace) as cluster:
            prometheus = prometheus_of(fleet, target.region)
            return RegionCheck(findings=await diagnose(cluster, prometheus, target, SystemClock()))
    except TidegateError as error:
        return RegionCheck(problem=str(error))


async def _check_theirs(spec: Delivery, fleet: ClusterFleetSpec, region: str) -> RegionCheck:
    """Whether a Rollout of others can be moved as the spec says, and its pods be told apart in Prometheus."""
    try:
        async with cluster_client(fleet.regions[region].context, fleet.namespace) as cluster:
            theirs = cluster_fleet(spec, fleet, region, cluster=cluster, clock=SystemClock(), patience=timedelta(0))
            others = await theirs.foreign_objects()
    except Unfit as error:
        return RegionCheck(findings=(_unfit(error.message, error.hint or ""),))
    except TidegateError as error:
        return RegionCheck(problem=str(error))
    return RegionCheck(findings=tuple(_unfit(str(each), "deliver under that name alone") for each in others))


def _unfit(what: str, remediation: str) -> Finding:
    cause = "a delivery is refused before it writes anything"
    return Finding(code="unfit", severity=Severity.ERROR, what=what, evidence=(), cause=cause, remediation=remediation)


def check_git(spec: Delivery) -> RegionCheck:
    """Whether a commit could be pushed to the repository that the spec names, and its sync be read."""
    access, found = git_access_for(spec, SystemClock()), []
    for refuse in (preview_git, refuse_unreadable_sync):
        try:
            refuse(spec, access)
        except TidegateError as error:
            found.append(
                Finding(
                    code="git",
                    severity=Severity.ERROR,
                    what=error.message,
                    evidence=(),
                    cause="a commit could not be pushed, or whether it was applied could not be read: "
                    "a delivery does not begin",
                    remediation=error.hint
                    or "correct what its own words name, under `git` in the spec or in the repository",
                )
            )
    return RegionCheck(findings=tuple(found))


def send_test(spec: Delivery) -> Sequence[tuple[NotificationChannel, str]]:
    """Send a test message to everyone under `notify`; returns why it was not accepted, empty where it was.

    Raises:
        UsageError: the spec notifies nobody, or a variable is not set.
    """
    if not spec.notify:
        hint = "add `notify: [{slack: {url_from_env: NAME}}]`"
        raise UsageError(f"{spec.path} configures no notifications", hint=hint)
    places = places_of(spec.notify)
    if unset := {each.variable for each in spec.notify} - {each.variable for each in places}:
        raise UsageError(f"not set: {', '.join(sorted(unset))}", hint="export the address that messages go to")
    subject = DeliverySubject(delivery="none", model=spec.model.name, version="none", champion="none", regions=())
    headline = f"A test of tidegate, for {spec.metadata.name}"
    sent = []
    for place in places:
        news = Notification(kind=NotificationKind.TEST, at=SystemClock().now(), subject=subject, headline=headline)
        try:
            deliver_message(place, news, send_by_http)
        except NotTaken as error:
            sent.append((place, str(error)))
        else:
            sent.append((place, ""))
    return sent
