"""Who applies what of a region's objects."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.kube.resources import CONFIG_MAPS
from rollouts.manifests.conventions import PUBLIC_KEYS, RenderPart, public_keys
from rollouts.manifests.customization.additions import additions_of
from rollouts.manifests.customization.labels import labelled
from rollouts.manifests.customization.patches import apply_patches
from rollouts.manifests.manifest import Release, ReleaseCandidate, Site, manifest
from rollouts.manifests.objects.access import access
from rollouts.manifests.objects.admission_policies import AdmissionScope, admission, image_policy
from rollouts.manifests.objects.capacity import disruption_budget, placeholders, priority_classes, scaler
from rollouts.manifests.objects.guard import guard_place, guarding
from rollouts.manifests.objects.network import network_policy, routes, services
from rollouts.manifests.objects.nodes import node_pool
from rollouts.manifests.objects.prometheus import trigger_authentication
from rollouts.manifests.objects.rollout import rollout
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY


def render(
    fleet: ArgoFleetSpec,
    release: Release,
    *,
    trial: ReleaseCandidate = ReleaseCandidate(),  # noqa: B008
    analyses: Iterable[Json] = (),
    monitors: Iterable[Json] = (),
    admitted: AdmissionScope = AdmissionScope(),  # noqa: B008
    parts: Iterable[RenderPart] = tuple(RenderPart),
    guard: str = "",
    samples: bool = False,
) -> tuple[Json, ...]:
    """Everything that the region needs; the same arguments give the same objects in the same order.

    Args:
        fleet: the delivery's `fleet`.
        release: the engine and its region.
        trial: how much the canary gets, step by step.
        analyses: AnalysisTemplates that watch the whole trial; the Rollout names them.
        monitors: other objects that belong to the region, such as a PodMonitor.
        admitted: who acts as tidegate, and where engines may come from.
        parts: which of it.
        guard: the image of what ends a trial without a carrier, by digest; nothing does so where it is empty.
        samples: whether engines may be asked to keep a share of users' requests.

    Raises:
        UsageError: no node is labelled with the GPU, a template asks for what a Rollout does not know, signatures are
            to be verified and nothing says whose, and of which images, or a patch changes what is a delivery's.
    """
    site, wanted = Site(fleet=fleet, release=release, guard=guard, samples=samples), set(parts)
    site = _with_additions(site)
    setup = _setup(site) if RenderPart.SETUP in wanted else ()
    serving = _serving(site, trial, tuple(analyses), tuple(monitors)) if RenderPart.SERVING in wanted else ()
    held = (*admission(site, admitted), *image_policy(site, admitted)) if RenderPart.ADMISSION in wanted else ()
    return _customized(fleet, (*setup, *held, *serving))


def _with_additions(site: Site) -> Site:
    """What patches bring into engines' pods, which policies have to let in."""
    if not site.fleet.patches:
        return site
    plain = rollout(site, ReleaseCandidate(), ())
    (patched,) = _customized(site.fleet, (plain,))
    before, after = (each["spec"]["template"]["spec"] for each in (plain, patched))
    return site.model_copy(update={"additions": additions_of(before, after)})


def _customized(fleet: ArgoFleetSpec, objects: tuple[Json, ...]) -> tuple[Json, ...]:
    """With labels and annotations, then the patches."""
    marked = [labelled(each, fleet.labels, fleet.annotations) for each in objects]
    found = apply_patches(fleet.patches, marked)
    for odd in found.conflicts:
        raise UsageError(f"fleet.patches[{odd.where[0]}]: found {odd.found}; expected {odd.expected}")
    return found.objects


def _setup(site: Site) -> tuple[Json, ...]:
    karpenter = site.fleet.nodes.karpenter
    pool = (node_pool(site, karpenter),) if karpenter else ()
    keda = trigger_authentication(site)
    return (
        *access(site),
        *priority_classes(site),
        *pool,
        network_policy(site),
        *_keys(site),
        *((keda,) if keda else ()),
        *guarding(guard_place(site)),
    )


def _keys(site: Site) -> tuple[Json, ...]:
    data = {PUBLIC_KEYS: site.release.public_keys}
    return (manifest(CONFIG_MAPS, public_keys(site.name), site, data=data),) if site.release.public_keys else ()


def _serving(
    site: Site, trial: ReleaseCandidate, analyses: tuple[Json, ...], monitors: tuple[Json, ...]
) -> tuple[Json, ...]:
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
