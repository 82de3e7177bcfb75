"""Builds the fleets of a delivery's regions in clusters: opens each by its own context, and closes them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from gates.model import ArmKey
from pipelines.model import Plan
from pipelines.plan.prebuilt import image_launch
from pipelines.plan.region_objects import rendering
from pipelines.ports import UserSamples
from pipelines.run.regions import foreign_objects_in
from pipelines.spec.delivery import Delivery
from registry.model import number_of
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.model import RegionConfig
from rollouts.cluster.peers import RoutePlace
from rollouts.cluster.referenced import ReferencedFleet, TrialNeeds
from rollouts.cluster.region import AnyRegion
from rollouts.cluster.route import RouteFleet
from rollouts.cluster.traffic_verification import RequestCounter
from rollouts.errors import Unfit, Unreachable
from rollouts.kube.client import RETRY_SECONDS, KubeClient, connect
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from rollouts.manifests.theirs_spec import POD_HASH, ReferencedFleetSpec, RouteFleetSpec
from rollouts.model import Engine, ForeignObject
from tidegate.core.access import PrometheusEndpoint
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import OutsideError, TidegateError
from tidegate.core.process import note


def needs_of(spec: Delivery, region: str) -> TrialNeeds:
    """What the stages need of the Rollout's steps."""
    smoke = ("smoke",) if spec.asks_arms(region) else ()
    dark = (*smoke, *(stage.name for stage in spec.stages if stage.name != "canary"))
    return TrialNeeds(weights=spec.canary.weights if spec.canary else (), dark=", ".join(dark))


def engines_of(plan: Plan, spec: Delivery, images: Mapping[str, str]) -> tuple[Engine, ...]:
    """What serves by the registry, and what is delivered; `images` are by the engine's name, where each has its own."""
    own = spec.engine.image.reference if spec.engine.image else ""
    named = {plan.in_production: plan.champion, plan.on_trial: plan.version}
    return tuple(
        Engine(version=name, digest=version.digest, model=spec.metadata.name, image=images.get(name) or own)
        for name, version in named.items()
        if images.get(name) or own
    )


GLANCE_SECONDS = 3.0
"""How long `status` sends a request again, for which a person waits: over a connection that broke, not an outage."""


def cluster_fleet(
    spec: Delivery,
    fleet: ClusterFleetSpec,
    region: str,
    *,
    cluster: KubeClient,
    clock: Clock,
    counted: bool = False,
    patience: timedelta | None = None,
    carrier: Carrier | None = None,
    public_keys: str = "",
    engines: Sequence[Engine] = (),
    arms: Mapping[str, str] | None = None,
) -> AnyRegion:
    """The fleet of one region; `patience` is the spec's when it is None. Anyone who only looks is no `carrier`.

    With `counted`, arrivals are proven by what Prometheus counts. One of `public_keys` (PEM) has to have signed the
    manifest of every engine that starts there. `engines` are those that a plan knows: what serves, what is delivered.
    `arms` are addresses of single arms that the spec does not have.
    """
    there, found = fleet.regions[region], arms or {}
    prometheus = there.prometheus
    label = fleet.label if isinstance(fleet, RouteFleetSpec) else POD_HASH
    labels = {"service": spec.metadata.name, "region": region}

    def served(series_of: Callable[[str], str | None]) -> RequestCounter:
        # Not above: it brings half of what a rollback would load before it sends its first request.
        from pipelines.adapters.series import ServedByPrometheus

        if isinstance(fleet, ArgoFleetSpec):
            return ServedByPrometheus(prometheus, lambda version: {**labels, "version": version})
        return ServedByPrometheus(prometheus, lambda version: {label: series_of(version) or NO_SERIES})

    # As long as a rendered Rollout itself waits for progress: the one who gives up first says why.
    start = fleet.pod.ready_within if isinstance(fleet, ArgoFleetSpec) else fleet.engine_starts_within
    place: dict[str, Any] = {
        "region": region,
        "name": spec.metadata.name,
        "entry": there.entry,
        "start_seconds": start.total_seconds(),
        "retry_seconds": (spec.patience.api if patience is None else patience).total_seconds(),
    }
    options: dict[str, Any] = {
        "cluster": cluster,
        "clock": clock,
        "served": served if counted else None,
        "carrier": carrier,
    }
    if isinstance(fleet, RouteFleetSpec):
        backends = RoutePlace(**place, reference=fleet.reference, urls=found or fleet.regions[region].urls)
        return RouteFleet(backends, champion=engines[0] if engines else None, **options)
    if isinstance(fleet, ReferencedFleetSpec):
        theirs = RegionConfig(**place, **(found or there.arms), traffic=fleet.traffic, theirs=fleet.rollout)
        scraped = None if spec.metrics.sources else partial(_is_scraped, prometheus)
        needs = needs_of(spec, region)
        return ReferencedFleet(theirs, needs=needs, scraped=scraped, engines=engines, **options)
    assert isinstance(fleet, ArgoFleetSpec), "clusters are rendered, or named by reference"
    ours = RegionConfig(**place, **(found or there.arms), traffic=fleet.traffic)
    tried = engines[-1] if engines and fleet.patches else None
    if tried:
        launch = image_launch(spec, fleet, spec.engine, version=number_of(tried.version), digest=tried.digest)
        tried = tried.model_copy(update={"launch": launch})
    return ArgoFleet(ours, render=rendering(spec, fleet, region, public_keys), tried=tried, **options)


@asynccontextmanager
async def open_clusters(
    spec: Delivery,
    fleet: ClusterFleetSpec,
    *,
    patience: timedelta | None = None,
    counted: bool = True,
    carrier: Carrier | None = None,
    public_keys: str = "",
    glance: bool = False,
    engines: Sequence[Engine] = (),
) -> AsyncIterator[Mapping[str, AnyRegion]]:
    """The fleet of each region. Nobody is asked anything yet.

    `patience` is how long a silent region is waited for, the spec's when it is None; `glance` that a person waits for
    one look, so that a region that refuses connections is soon given up. A `carrier` says in each region where it has
    begun that it lives, until the end; without one this only looks. The other arguments are as for `cluster_fleet`.

    Raises:
        NoAccess: the kubeconfig has no such context, or cannot be read.
    """
    clock = SystemClock()
    retries = GLANCE_SECONDS if glance else RETRY_SECONDS
    async with AsyncExitStack() as stack:
        fleets: dict[str, AnyRegion] = {}
        for region in spec.regions.names:
            there = fleet.regions[region]
            cluster = connect(there.context or None, clock=clock, namespace=fleet.namespace, retry_seconds=retries)
            stack.push_async_callback(cluster.close)
            services, arms = spec.arm_services(region) if carrier and counted else {}, dict[str, str]()
            if services:
                # Not above: who goes back asks no engine, and waits for no web server to be loaded.
                from rollouts.adapters.service_proxy import forwarding

                addresses = await stack.enter_async_context(forwarding(cluster, services.values()))
                arms = {arm: addresses[service] for arm, service in services.items()}
            fleets[region] = cluster_fleet(
                spec,
                fleet,
                region,
                cluster=cluster,
                clock=clock,
                counted=counted,
                patience=patience,
                carrier=carrier,
                public_keys=public_keys,
                engines=engines,
                arms=arms,
            )
        async with _renewed_leases(fleets, carrier):
            yield fleets


def series_of(fleets: Mapping[str, AnyRegion]) -> Callable[[ArmKey], ArmKey] | None:
    """By which value of their label series of an arm are found; None where it names versions."""

    def named(arm: ArmKey) -> ArmKey:
        return arm.model_copy(update={"version": fleets[arm.region].series_of(arm.version) or NO_SERIES})

    return named if any(each.series_of("") is not None for each in fleets.values()) else None


@asynccontextmanager
async def open_samples(spec: Delivery, fleet: ClusterFleetSpec) -> AsyncIterator[UserSamples | None]:
    """What takes samples of users' requests from the pods of all regions; None where the spec asks for none."""
    if spec.samples is None:
        yield None
        return
    from pipelines.adapters.samples import ClusterSamples
    from rollouts.cluster.samples import RegionSamples

    clock, name, patience = SystemClock(), spec.metadata.name, spec.patience.api.total_seconds()
    async with AsyncExitStack() as stack:
        regions = {}
        for region in spec.regions.names:
            context = fleet.regions[region].context or None
            cluster = connect(context, clock=clock, namespace=fleet.namespace, retry_seconds=0)
            stack.push_async_callback(cluster.close)
            regions[region] = RegionSamples(region, cluster, name, clock, patience_seconds=patience)
        yield ClusterSamples(regions, spec.samples, clock)


@asynccontextmanager
async def _renewed_leases(fleets: Mapping[str, AnyRegion], carrier: Carrier | None) -> AsyncIterator[None]:
    if carrier is None:
        yield
        return
    tasks = [asyncio.create_task(fleet.keep_renewing()) for fleet in fleets.values()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.gather(*(fleet.leave() for fleet in fleets.values()))


NO_SERIES = "unknown"
"""In place of a value that nobody knows: nothing has it, where an empty one would be everything without the label."""


async def _is_scraped(at: PrometheusEndpoint, pod_hash: str) -> bool:
    """Whether a target has that label; of a Prometheus that does not answer the gates will tell."""
    from gates.evidence.names import NAME, UP
    from pipelines.adapters.series import found_now

    try:
        return bool(await found_now(at, {NAME: UP, POD_HASH: pod_hash}))
    except OutsideError as error:
        note(f"whether engines are scraped is not known: {error}")
        return True


LOOK_SECONDS = 5.0
"""A plan is made where no cluster can be reached too, such as in a pull request's pipeline."""


async def foreign_objects_in_clusters(
    spec: Delivery, fleet: ClusterFleetSpec, engines: Sequence[Engine] = ()
) -> Mapping[str, Sequence[ForeignObject] | TidegateError]:
    """By region, as a delivery looks before its first write: objects of others, or why nobody could look.

    Raises:
        Unfit: objects of others cannot be moved as the spec says, or the API server refuses a patched one.
        TidegateError: no cluster can be reached from here.
    """

    async def look(there: AnyRegion) -> Sequence[ForeignObject] | TidegateError:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await foreign_objects_in(there)
        except TimeoutError:
            return Unreachable(f"{there.region}: no answer within {LOOK_SECONDS:.0f} s")
        except Unfit:
            raise
        except TidegateError as error:
            return error

    async with open_clusters(spec, fleet, patience=timedelta(0), counted=False, engines=engines) as fleets:
        looked = await asyncio.gather(*map(look, fleets.values()))
    return dict(zip(fleets, looked, strict=True))
