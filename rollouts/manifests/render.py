"""Who applies what of a region's objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rollouts.kube.resources import CONFIG_MAPS
from rollouts.manifests.admission import admission
from rollouts.manifests.conventions import PUBLIC_KEYS, RenderPart, driver, public_keys
from rollouts.manifests.manifest import Place, Release, Site, manifest
from rollouts.manifests.objects.access import access, account_with, asking_rights, guard_rights, route_rights
from rollouts.manifests.objects.capacity import disruption_budget, node_pool, placeholders, scaled_object
from rollouts.manifests.objects.guard import guard_of, guarding
from rollouts.manifests.objects.network import network_policy, route, services
from rollouts.manifests.objects.rollout import rollout
from rollouts.manifests.patches import apply_patches
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.manifests.theirs_spec import ReferencedFleetSpec, RouteFleetSpec, TheirsFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY


def render(
    fleet: ArgoFleetSpec,
    release: Release,
    *,
    analyses: Iterable[Json] = (),
    monitors: Iterable[Json] = (),
    parts: Collection[RenderPart] = tuple(RenderPart),
) -> tuple[Json, ...]:
    """Everything that the region needs; the same arguments give the same objects in the same order.

    `analyses` are AnalysisTemplates that watch the whole trial, which the Rollout names; `monitors` other objects that
    belong to the region, such as a PodMonitor.

    Raises:
        UsageError: a patch changes what is a delivery's.
    """
    site, templates, objects = Site(fleet=fleet, release=release), tuple(analyses), list[Json]()
    if RenderPart.SETUP in parts:
        objects += _setup(site)
    if RenderPart.SERVING in parts:
        # What was given is in the delivery's namespace, and has its labels.
        given = (
            {**each, "metadata": {**each["metadata"], "namespace": fleet.namespace, "labels": _labels(site, each)}}
            for each in (*templates, *monitors)
        )
        objects += (*services(site), route(site), *given)
        objects += [disruption_budget(site, fleet.unavailable)] if fleet.unavailable else []
        objects += [scaled_object(site, fleet.autoscale)] if fleet.autoscale else []
        objects.append(rollout(site, templates))
    patched, conflicts = apply_patches(fleet.patches, objects)
    for odd in conflicts:
        raise UsageError(f"fleet.patches[{odd.where[0]}]: found {odd.found}; expected {odd.expected}")
    return patched


def _labels(site: Site, given: Json) -> Json:
    return {**MANAGED_BY, DELIVERY: site.name, **given["metadata"].get("labels", {})}


def _setup(site: Site) -> Iterator[Json]:
    fleet, keys = site.fleet, site.release.public_keys
    yield from access(site)
    if fleet.nodes.karpenter:
        yield node_pool(site, fleet.nodes.karpenter)
    if fleet.network:
        yield network_policy(site, fleet.network)
    if keys:
        yield manifest(CONFIG_MAPS, public_keys(site.name), site, data={PUBLIC_KEYS: keys})
    if fleet.warm_pool:
        yield from placeholders(site, fleet.warm_pool)
    yield from guard_of(site)
    yield from admission(site)


def beside(
    name: str, fleet: TheirsFleetSpec, region: str, image: str, services: Iterable[str] = ()
) -> tuple[Json, ...]:
    """What an administrator applies in a region next to objects of others: tidegate's rights, and the guard.

    tidegate gets a service account, for where it runs in the cluster, and may what its guard may, but write Events; no
    right is outside the namespace. `image` is the guard's, by digest; empty for no guard. `services` are asked through
    the API server.
    """
    said: Json = {"start_seconds": fleet.start_within.total_seconds()}
    if isinstance(fleet, RouteFleetSpec):
        rights = route_rights(name, fleet.reference)
        said["reference"] = fleet.reference.model_dump(mode="json", exclude_defaults=True)
        said |= {"keep_seconds": fleet.keep.total_seconds()} if fleet.keep else {}
    else:
        assert isinstance(fleet, ReferencedFleetSpec), "objects of others are a Rollout's or a route's"
        theirs, route = fleet.rollout, fleet.route_kind
        rights = guard_rights(name, theirs.name, route, theirs.route, theirs.workload or "", pools=theirs.services)
        said |= {"traffic": str(fleet.traffic), "theirs": theirs.model_dump(mode="json", exclude_defaults=True)}
    place = Place(name, fleet.namespace)
    return (
        *account_with((*rights, *asking_rights(services)), place, driver(name)),
        *guarding(place, image, rights, region, said),
    )
