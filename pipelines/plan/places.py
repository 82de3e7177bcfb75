"""Where a region is, what is needed of objects of others there, and the engines that a plan knows of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pipelines.model import Plan
from pipelines.spec.delivery import Delivery
from rollouts.cluster.model import RegionConfig
from rollouts.cluster.peers import RoutePlace
from rollouts.cluster.referenced import TrialNeeds
from rollouts.manifests.reference_spec import ReferencedFleetSpec
from rollouts.manifests.route_spec import RouteFleetSpec
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from rollouts.model import Engine


def place_of(spec: Delivery, fleet: ArgoFleetSpec, region: str, patience: timedelta) -> RegionConfig:
    """Of a Rollout that tidegate renders."""
    return RegionConfig(
        **_shared(spec, fleet, region, patience),
        traffic=fleet.traffic,
        **fleet.regions[region].arms,
        warm_versions=fleet.previous.versions if fleet.previous else None,
        keep_seconds=fleet.previous.keep.total_seconds() if fleet.previous else 0.0,
        after_abort_seconds=fleet.canary.after_abort.total_seconds(),
        nodes_grow=fleet.nodes.grow,
    )


def reference_place(spec: Delivery, fleet: ReferencedFleetSpec, region: str, patience: timedelta) -> RegionConfig:
    """Of a Rollout of others."""
    shared, arms = _shared(spec, fleet, region, patience), fleet.regions[region].arms
    return RegionConfig(**shared, traffic=fleet.traffic, theirs=fleet.rollout, **arms)


def route_place(spec: Delivery, fleet: RouteFleetSpec, region: str, patience: timedelta) -> RoutePlace:
    """Of two backends of a route."""
    shared = _shared(spec, fleet, region, patience)
    return RoutePlace(**shared, reference=fleet.reference, urls=fleet.regions[region].urls)


def _shared(spec: Delivery, fleet: ClusterFleetSpec, region: str, patience: timedelta) -> dict[str, Any]:
    # As long as a rendered Rollout itself waits for progress: the one who gives up first says why.
    start = fleet.pod.ready_within if isinstance(fleet, ArgoFleetSpec) else fleet.engine_starts_within
    return {
        "region": region,
        "name": spec.metadata.name,
        "entry": fleet.regions[region].entry,
        "start_seconds": start.total_seconds(),
        "retry_seconds": patience.total_seconds(),
    }


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
