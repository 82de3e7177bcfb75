"""The fleet of one region in a cluster: what is rendered for its engines, where it is, what counts its requests."""

from __future__ import annotations

from datetime import timedelta

from pipelines.plan.region_objects import region_objects
from pipelines.spec.delivery import Delivery
from rollouts.cluster.carrier import Carrier
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.model import RegionConfig, Render
from rollouts.cluster.routes import HttpRoutes, RouteKind, VirtualServices
from rollouts.cluster.traffic_verification import RequestCounter
from rollouts.kube.model import Json
from rollouts.kube.ports import Cluster
from rollouts.manifests.manifest import Release
from rollouts.manifests.objects.rollout import SLACK
from rollouts.manifests.render import RenderPart
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.manifests.traffic_spec import TrafficRouter
from rollouts.model import Engine
from tidegate.core.clock import Clock


def argo_fleet(
    spec: Delivery,
    fleet: ArgoFleetSpec,
    region: str,
    *,
    cluster: Cluster,
    clock: Clock,
    served: RequestCounter | None = None,
    patience: timedelta | None = None,
    carrier: Carrier | None = None,
    public_keys: str = "",
) -> ArgoFleet:
    """The fleet of one region; `patience` is the spec's when it is None. Anyone who only looks is no `carrier`.

    One of `public_keys` (PEM) has to have signed the manifest of every engine that starts there.
    """
    return ArgoFleet(
        place_of(spec, fleet, region, spec.api_patience if patience is None else patience),
        cluster=cluster,
        routes=routes_of(fleet),
        render=rendering(spec, fleet, region, public_keys),
        clock=clock,
        served=served,
        carrier=carrier,
    )


def place_of(spec: Delivery, fleet: ArgoFleetSpec, region: str, patience: timedelta) -> RegionConfig:
    """Where the region is, and how long things may take there."""
    there = fleet.regions[region]
    return RegionConfig(
        region=region,
        name=spec.metadata.name,
        entry=there.entry,
        stable_url=there.stable_url,
        canary_url=there.canary_url,
        # As long as the Rollout itself waits for progress: the one who gives up first says why.
        start_seconds=(fleet.pod.start_within + SLACK).total_seconds(),
        retry_seconds=patience.total_seconds(),
        warm_versions=fleet.previous.versions if fleet.previous else None,
        after_abort_seconds=fleet.canary.after_abort.total_seconds(),
        nodes_grow=fleet.nodes.grow,
    )


def routes_of(fleet: ArgoFleetSpec) -> RouteKind:
    """The object that splits the fleet's users."""
    return VirtualServices() if fleet.traffic is TrafficRouter.ISTIO else HttpRoutes()


def rendering(spec: Delivery, fleet: ArgoFleetSpec, region: str, public_keys: str = "") -> Render:
    """What makes the objects that a delivery itself applies there; an administrator's part is there already."""

    def render(engine: Engine) -> tuple[Json, ...]:
        release = Release(
            delivery=spec.metadata.name,
            region=region,
            version=engine.version,
            digest=engine.digest,
            image=engine.image,
            public_keys=public_keys,
            accelerator=str(spec.engine.accelerator),
            accelerators=spec.engine.accelerator_count,
        )
        return region_objects(spec, fleet, release, parts=(RenderPart.SERVING,)).objects

    return render
