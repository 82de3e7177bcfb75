"""All objects of one region, in the order in which they can be applied: each after what it needs, the Rollout last."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.kube.model import Json
from rollouts.kube.resources import CONFIG_MAPS
from rollouts.manifests.conventions import DELIVERY, MANAGED_BY, PUBLIC_KEYS, public_keys
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.access import access
from rollouts.manifests.objects.nodes import node_pool
from rollouts.manifests.objects.policies import disruption_budget, network_policy
from rollouts.manifests.objects.rollout import rollout
from rollouts.manifests.objects.routes import routes
from rollouts.manifests.objects.scaler import scaler
from rollouts.manifests.objects.services import services
from rollouts.manifests.objects.warm_pool import placeholders, priority_classes
from rollouts.manifests.parts import Part
from rollouts.manifests.release import Release, Trial
from rollouts.manifests.spec import ArgoFleetSpec


def render(
    fleet: ArgoFleetSpec,
    release: Release,
    *,
    trial: Trial = Trial(),  # noqa: B008
    analyses: Iterable[Json] = (),
    monitors: Iterable[Json] = (),
    parts: Iterable[Part] = tuple(Part),
) -> tuple[Json, ...]:
    """Everything that the region needs; the same arguments give the same objects in the same order.

    Args:
        fleet: the delivery's `fleet`.
        release: the engine and its region.
        trial: how much the canary gets, step by step.
        analyses: AnalysisTemplates that watch the whole trial; the Rollout names them.
        monitors: other objects that belong to the region, such as a PodMonitor.
        parts: which of it.

    Raises:
        UsageError: no node is labelled with the GPU, or a template asks for what a Rollout does not know.
    """
    site, wanted = Site(fleet=fleet, release=release), set(parts)
    setup = _setup(site) if Part.SETUP in wanted else ()
    serving = _serving(site, trial, tuple(analyses), tuple(monitors)) if Part.SERVING in wanted else ()
    return (*setup, *serving)


def _setup(site: Site) -> tuple[Json, ...]:
    karpenter = site.fleet.nodes.karpenter
    pool = (node_pool(site, karpenter),) if karpenter else ()
    return (*access(site), *priority_classes(site), *pool, network_policy(site), *_keys(site))


def _keys(site: Site) -> tuple[Json, ...]:
    data = {PUBLIC_KEYS: site.release.public_keys}
    return (manifest(CONFIG_MAPS, public_keys(site.name), site, data=data),) if site.release.public_keys else ()


def _serving(site: Site, trial: Trial, analyses: tuple[Json, ...], monitors: tuple[Json, ...]) -> tuple[Json, ...]:
    fleet = site.fleet
    return (
        *services(site),
        *routes(site),
        *(_placed(site, each) for each in (*analyses, *monitors)),
        disruption_budget(site),
        *((scaler(site, fleet.autoscale),) if fleet.autoscale else ()),
        *((placeholders(site, fleet.warm_pool),) if fleet.warm_pool else ()),
        rollout(site, trial, analyses),
    )


def _placed(site: Site, given: Json) -> Json:
    """As it was given, in the delivery's namespace."""
    metadata = given["metadata"]
    labels = {**MANAGED_BY, DELIVERY: site.name, **metadata.get("labels", {})}
    return {**given, "metadata": {**metadata, "namespace": site.fleet.namespace, "labels": labels}}
