"""Objects of others in a region: where they are, what is needed, and the engines that a plan knows of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from pipelines.model import Plan
from pipelines.spec.delivery import Delivery
from rollouts.cluster.model import RegionConfig
from rollouts.cluster.peers import RoutePlace
from rollouts.cluster.referenced import TrialNeeds
from rollouts.manifests.reference_spec import ReferencedFleetSpec
from rollouts.manifests.route_spec import RouteFleetSpec
from rollouts.model import Engine


def reference_place(spec: Delivery, fleet: ReferencedFleetSpec, region: str, patience: timedelta) -> RegionConfig:
    """Where the region is, and how long things may take there."""
    there = fleet.regions[region]
    return RegionConfig(
        region=region,
        name=spec.metadata.name,
        traffic=fleet.traffic,
        theirs=fleet.rollout,
        entry=there.entry,
        stable_url=there.stable_url or "",
        canary_url=there.canary_url or "",
        start_seconds=fleet.start_within.total_seconds(),
        retry_seconds=patience.total_seconds(),
    )


def route_place(spec: Delivery, fleet: RouteFleetSpec, region: str, patience: timedelta) -> RoutePlace:
    """The same of two backends of a route."""
    there = fleet.regions[region]
    return RoutePlace(
        region=region,
        name=spec.metadata.name,
        reference=fleet.reference,
        urls=there.urls,
        entry=there.entry,
        start_seconds=fleet.start_within.total_seconds(),
        retry_seconds=patience.total_seconds(),
    )


def needs_of(spec: Delivery, fleet: ReferencedFleetSpec, region: str) -> TrialNeeds:
    """What the stages need of the Rollout's steps."""
    smoke = ("smoke",) if fleet.regions[region].arms else ()
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
