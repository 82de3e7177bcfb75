"""Who applies what of a region's objects."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.kube.resources import CONFIG_MAPS
from rollouts.manifests.admission import admission
from rollouts.manifests.conventions import PUBLIC_KEYS, RenderPart, public_keys
from rollouts.manifests.manifest import Release, Site, manifest
from rollouts.manifests.objects.access import access
from rollouts.manifests.objects.capacity import (
    disruption_budget,
    placeholders,
    priority_classes,
    scaled_object,
    trigger_authentication,
)
from rollouts.manifests.objects.guard import guard_place, guarding
from rollouts.manifests.objects.network import network_policy, routes, services
from rollouts.manifests.objects.nodes import node_pool
from rollouts.manifests.objects.rollout import rollout
from rollouts.manifests.patches import apply_patches
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY


def render(
    fleet: ArgoFleetSpec,
    release: Release,
    *,
    analyses: Iterable[Json] = (),
    monitors: Iterable[Json] = (),
    parts: Iterable[RenderPart] = tuple(RenderPart),
) -> tuple[Json, ...]:
    """Everything that the region needs; the same arguments give the same objects in the same order.

    Args:
        fleet: the delivery's `fleet`.
        release: the engine and its region.
        analyses: AnalysisTemplates that watch the whole trial; the Rollout names them.
        monitors: other objects that belong to the region, such as a PodMonitor.
        parts: which of it.

    Raises:
        UsageError: no node is labelled with the GPU, a template asks for what a Rollout does not know, or a patch
            changes what is a delivery's.
    """
    site, wanted = Site(fleet=fleet, release=release), set(parts)
    setup = _setup(site) if RenderPart.SETUP in wanted else ()
    serving = _serving(site, tuple(analyses), tuple(monitors)) if RenderPart.SERVING in wanted else ()
    found = apply_patches(fleet.patches, (*setup, *serving))
    for odd in found.conflicts:
        raise UsageError(f"fleet.patches[{odd.where[0]}]: found {odd.found}; expected {odd.expected}")
    return found.objects


def _setup(site: Site) -> tuple[Json, ...]:
    fleet, keys = site.fleet, site.release.public_keys
    asked = (
        node_pool(site, fleet.nodes.karpenter) if fleet.nodes.karpenter else None,
        network_policy(site, fleet.network) if fleet.network else None,
        manifest(CONFIG_MAPS, public_keys(site.name), site, data={PUBLIC_KEYS: keys}) if keys else None,
        trigger_authentication(site),
        placeholders(site, fleet.warm_pool) if fleet.warm_pool else None,
    )
    return (
        *access(site),
        *priority_classes(site),
        *(each for each in asked if each),
        *guarding(guard_place(site)),
        *admission(site),
    )


def _serving(site: Site, analyses: tuple[Json, ...], monitors: tuple[Json, ...]) -> tuple[Json, ...]:
    fleet = site.fleet
    return (
        *services(site),
        *routes(site),
        *(_placed(site, each) for each in (*analyses, *monitors)),
        *((disruption_budget(site, fleet.unavailable),) if fleet.unavailable else ()),
        *((scaled_object(site, fleet.autoscale),) if fleet.autoscale else ()),
        rollout(site, analyses),
    )


def _placed(site: Site, given: Json) -> Json:
    """As it was given, in the delivery's namespace."""
    metadata = given["metadata"]
    labels = {**MANAGED_BY, DELIVERY: site.name, **metadata.get("labels", {})}
    return {**given, "metadata": {**metadata, "namespace": site.fleet.namespace, "labels": labels}}
