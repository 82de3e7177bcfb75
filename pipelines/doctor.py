"""What would break a delivery: in each of its regions, in its repository, and on the way of its notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from gates.analyses.errors import ErrorsGate
from gates.analyses.latency import LatencyGate
from gates.evidence.names import NAME, PROCESS_START, UP, selector
from pipelines.adapters.clusters import cluster_fleet
from pipelines.adapters.fleets import cluster_client, require_contexts
from pipelines.adapters.services import places_of, send_by_http
from pipelines.adapters.trust import trusted_images
from pipelines.authority.engine_images import pem_of
from pipelines.plan.region_objects import region_objects, release_of
from pipelines.run.git import refuse_unwritable
from pipelines.spec.delivery import Delivery
from pipelines.spec.trust import Trusted
from pipelines.views.notifications import (
    DeliverySubject,
    Notification,
    NotificationChannel,
    NotTaken,
    deliver_message,
)
from rollouts.adapters.prometheus_query import PrometheusQuery
from rollouts.doctor.diagnosis import diagnose
from rollouts.doctor.gather import required_access
from rollouts.doctor.model import DiagnosisTarget, EvidenceQuery, Finding, ScrapeInterval, Severity
from rollouts.errors import Unfit
from rollouts.manifests.manifest import Release
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from slo.catalogue import slo_of
from slo.model import WINDOW_PLACE, EventSli
from slo.spec import CountedBy
from tidegate.core.clock import SystemClock
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.metrics import MetricSignal, MetricSource, PresetName, source_of
from tidegate.core.model import Value


class RegionCheck(Value):
    """What became of one region: its findings, or why it could not be looked at."""

    findings: tuple[Finding, ...] = ()
    problem: str = ""


def check_regions(
    spec: Delivery, fleet: ClusterFleetSpec, regions: Sequence[str], trusted: Trusted, controller_namespace: str
) -> dict[str, RegionCheck]:
    """Look at every region at once. Changes nothing.

    Raises:
        KubeconfigWrong: it has none of the contexts.
    """
    require_contexts(spec, regions)

    async def check_all() -> list[RegionCheck]:
        if not isinstance(fleet, ArgoFleetSpec):
            return await asyncio.gather(*(_check_theirs(spec, fleet, region) for region in regions))
        keys, images = pem_of(trusted_images(trusted)), trusted.trust.engines.images
        # Which engine it is changes no name.
        known = partial(release_of, spec, fleet, public_keys=keys, repositories=images, serving=False)
        return await asyncio.gather(*(_check(spec, fleet, known(region), controller_namespace) for region in regions))

    return dict(zip(regions, asyncio.run(check_all()), strict=True))


async def _check(spec: Delivery, fleet: ArgoFleetSpec, release: Release, controller_namespace: str) -> RegionCheck:
    """One region on its own: another's absence is not its."""
    region, there = release.region, fleet.regions[release.region]
    target = DiagnosisTarget(
        region=region,
        delivery=spec.metadata.name,
        traffic=fleet.traffic,
        controller_namespace=controller_namespace,
        questions=asked_of_prometheus(spec, region),
        scraping=scraping_of(spec, region),
        rights=required_access(fleet, release),
        objects=region_objects(spec, fleet, release).objects,
    )
    try:
        async with cluster_client(there.context, fleet.namespace) as cluster:
            return RegionCheck(
                findings=await diagnose(cluster, PrometheusQuery(there.prometheus), target, SystemClock())
            )
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
    """Whether a commit could be pushed to the repository that the spec names."""
    try:
        refuse_unwritable(spec)
    except TidegateError as error:
        finding = Finding(
            code="git",
            severity=Severity.ERROR,
            what=error.message,
            evidence=(),
            cause="a commit could not be pushed: a delivery does not begin",
            remediation=error.hint or "correct what its own words name, under `git` in the spec or in the repository",
        )
        return RegionCheck(findings=(finding,))
    return RegionCheck()


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
        news = Notification(kind="test", at=SystemClock().now(), subject=subject, headline=headline)
        try:
            deliver_message(place, news, send_by_http)
        except NotTaken as error:
            sent.append((place, str(error)))
        else:
            sent.append((place, ""))
    return sent


Kind = TypeVar("Kind", LatencyGate, ErrorsGate)
WINDOW = "5m"
"""Of every question: as far back as Prometheus itself looks for a sample."""


def asked_of_prometheus(spec: Delivery, region: str) -> tuple[EvidenceQuery, ...]:
    """One question for each count that a gate or an SLO rests on, of all engines of a region together."""
    return (*_gates(spec, region), *_slos(spec))


def scraping_of(spec: Delivery, region: str) -> ScrapeInterval:
    """How often the region's engines should be scraped, and the query that tells how often they are.

    It measures from the first to the last sample of each, so that an engine that came a minute ago counts too.
    """
    up = selector({NAME: UP, "service": spec.metadata.name, "region": region})
    times = f"timestamp({up})[{WINDOW}:1s]"
    query = f"max((max_over_time({times}) - min_over_time({times})) / changes({times}))"
    return ScrapeInterval(query=query, interval=spec.scrape_interval, look=spec.look)


def _gates(spec: Delivery, region: str) -> Iterator[EvidenceQuery]:
    """Counts of the stable arm, which is there at any time; gates ask for the canary's by the same names."""
    used = {gate for stage in (spec.shadow, spec.canary) if stage for gate in stage.gates}
    if not spec.sources:
        stable = {"service": spec.metadata.name, "region": region, "role": "stable"}
        for name in (UP, PROCESS_START):
            yield EvidenceQuery(asked_by="every gate", query=f"count({selector({NAME: name, **stable})})")
    # Which version is stable is not known here, so a label of versions is not asked.
    sources = spec.sources or (MetricSource(preset=PresetName.VLLM),)
    for gate, latency in _used(spec, LatencyGate, used):
        source = source_of(sources, signal := MetricSignal(str(latency.metric)))
        series = source and source.time_series(signal)
        if source and series:
            stable = {NAME: f"{series.metric}_count", **_stable(source, spec, region)}
            yield EvidenceQuery(asked_by=f"gate {gate}", query=_some(stable, {**source.matchers, **series.match}))
    counter = source_of(sources, MetricSignal.REQUESTS)
    requests = counter.request_series if counter else None
    if counter and requests:
        stable = {NAME: requests.metric, **_stable(counter, spec, region)}
        for gate, _ in _used(spec, ErrorsGate, used):
            yield EvidenceQuery(asked_by=f"gate {gate}", query=_some(stable, {**counter.matchers, **requests.match}))


def _used(spec: Delivery, kind: type[Kind], used: Container[str]) -> Iterator[tuple[str, Kind]]:
    """The gates of that kind that a stage asks, by name."""
    yield from ((gate, settings) for gate, settings in spec.gates.of(kind).items() if gate in used)


def _stable(source: MetricSource, spec: Delivery, region: str) -> Mapping[str, str]:
    labels = source.labels_of(service=spec.metadata.name, region=region, role="stable", version="")
    of_version = "version" if source.has_own_labels else "" if source.names_roles else source.arm_label
    return {name: value for name, value in labels.items() if name != of_version}


def _some(labels: Mapping[str, str], like: Mapping[str, str]) -> str:
    return f"sum(increase({selector(labels, like=like)}[{WINDOW}])) > 0"


def _slos(spec: Delivery) -> Iterator[EvidenceQuery]:
    for item in spec.slos:
        # In a cluster it is the engines that are scraped, no matter who routes to them.
        sli = slo_of(item, service=spec.metadata.name, counted_by=CountedBy.ENGINE, sources=spec.sources).sli
        query = sli.total_query if isinstance(sli, EventSli) else sli.error_ratio_query
        yield EvidenceQuery(asked_by=f"SLO {item.name}", query=WINDOW_PLACE.sub(WINDOW, query))
