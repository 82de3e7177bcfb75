"""Who applies what of a region's objects."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.kube.resources import CONFIG_MAPS
from rollouts.manifests.admission import admission
from rollouts.manifests.conventions import PUBLIC_KEYS, RenderPart, public_keys
from rollouts.manifests.manifest import Release, Site, manifest
from rollouts.manifests.objects.access import access, access_by_reference, guard_rights, route_rights
from rollouts.manifests.objects.capacity import (
    disruption_budget,
    placeholders,
    priority_classes,
    scaled_object,
    trigger_authentication,
)
from rollouts.manifests.objects.guard import GuardPlace, guard_place, guarding
from rollouts.manifests.objects.network import network_policy, routes, services
from rollouts.manifests.objects.nodes import node_pool
from rollouts.manifests.objects.rollout import rollout
from rollouts.manifests.patches import apply_patches
from rollouts.manifests.pod_spec import GuardSpec
from rollouts.manifests.reference_spec import ReferencedFleetSpec, TheirsFleetSpec
from rollouts.manifests.route_spec import RouteFleetSpec
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
        UsageError: a patch changes what is a delivery's.
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


def beside(name: str, fleet: TheirsFleetSpec, region: str, image: str) -> tuple[Json, ...]:
    """What an administrator applies in a region next to objects of others: tidegate's rights, and the guard.

    Args:
        name: the delivery's.
        fleet: its fleet.
        region: one of the fleet's.
        image: of the guard, by digest; empty for no guard.
    """
    place: Json = {"start_seconds": fleet.start_within.total_seconds()}
    if isinstance(fleet, RouteFleetSpec):
        rights = route_rights(name, fleet.reference)
        place["reference"] = fleet.reference.model_dump(mode="json", exclude_defaults=True)
    else:
        assert isinstance(fleet, ReferencedFleetSpec), "objects of others are a Rollout's or a route's"
        theirs, route = fleet.rollout, fleet.route_kind
        rights = guard_rights(name, theirs.name, route, theirs.route, theirs.workload or "", pools=theirs.services)
        place |= {"traffic": str(fleet.traffic), "theirs": theirs.model_dump(mode="json", exclude_defaults=True)}
    guard = GuardPlace(
        name=name,
        namespace=fleet.namespace,
        image=image,
        rights=rights,
        region=region,
        place=place,
        settings=fleet.guard or GuardSpec(),
    )
    return (*access_by_reference(guard, rights), *guarding(guard))
