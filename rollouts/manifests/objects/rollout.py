"""The Rollout of a region's engines, and the steps by which it brings a version to its users.

    0  setCanaryScale     engines for the copies
    1  pause {}           deployed: ready, no user; copies come and go here
    2  setWeight 5        Argo Rollouts sends users only when all engines asked for are ready
    3  pause {}           until somebody decides
    4  setWeight 25 ...

A weight that needs more engines than there are has a `setCanaryScale` before it. No step takes engines away: the next
weight would wait minutes for them. `matchTrafficWeight` is not used: at weight 0 it means no engine at all, and Argo
Rollouts then takes the canary's routes away. No pause ends by itself: a delivery that dies leaves the weight where it
is, and the background analysis watches.

Fields and their bounds: `pkg/apis/rollouts/v1alpha1/types.go` and `pkg/apis/rollouts/validation/validation.go` of
argo-rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rollouts.kube.resources import ROLLOUTS
from rollouts.manifests.conventions import canary_service, stable_service
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import Release, Site, manifest
from rollouts.manifests.objects.pods import pod_template
from rollouts.manifests.routers import ROUTERS
from rollouts.manifests.spec import CanarySpec
from tidegate.core.model import Json
from tidegate.core.names import CANARY, REGION, ROLE, STABLE, VERSION

HISTORY = 10
"""Old ReplicaSets that are remembered; Argo Rollouts wants no fewer than it keeps warm."""


def rollout(site: Site, analyses: tuple[Json, ...]) -> Json:
    """The object; `analyses` are AnalysisTemplates of the same namespace.

    With an autoscaler it says no number of engines, or saying it again would take some away.
    """
    fleet, release = site.fleet, site.release
    # Counted are all that were made in between, those that were taken back too (`isRollbackWithinWindow`); and no
    # trial comes back through it past its gates, since each is a template of its own.
    window = {"rollbackWindow": {"revisions": HISTORY}} if fleet.previous else {}
    spec: Json = {
        **({} if fleet.autoscale else {"replicas": site.replicas}),
        "revisionHistoryLimit": HISTORY,
        "progressDeadlineSeconds": whole_seconds(fleet.pod.ready_within),
        **window,
        "selector": {"matchLabels": dict(site.selector)},
        "strategy": {"canary": _strategy(site, analyses)},
        "template": pod_template(site),
    }
    labels = {REGION: release.region, VERSION: release.version}
    return manifest(ROLLOUTS, site.name, site, labels=labels, spec=spec)


def steps_of(release: Release, canary: CanarySpec, replicas: int) -> list[Json]:
    """A pause at the beginning and after every weight; a promotion skips what is left.

    Args:
        release: what a canary of it gets.
        canary: how many engines the spec gives it.
        replicas: engines of the stable.
    """
    return [step for part in _parts(release, canary, replicas) for step in part]


def first_with_users(steps: Sequence[Json]) -> int:
    """Where the background analysis begins: before, nobody's requests are at stake."""
    return next((index for index, step in enumerate(steps) if step.get("setWeight")), len(steps))


def _parts(release: Release, canary: CanarySpec, replicas: int) -> Iterator[list[Json]]:
    """Engines of the canary as a share of the stable's, which an autoscaler may change; or a number at first."""
    if canary.replicas or not release.mirror:
        number = canary.replicas or canary.min_replicas
        share = math.floor(100 * number / replicas)
        first: Json = {"replicas": number}
    else:
        # A canary that gets a copy of everything needs what the stable needs, or it looks worse than it is.
        share = release.mirror
        first = {"weight": share}
    yield [{"setCanaryScale": first}, {"pause": {}}]
    for weight in release.weights:
        if weight > share:
            share = weight
            yield [{"setCanaryScale": {"weight": share}}]
        yield [{"setWeight": weight}, {"pause": {}}]


_ARGUMENTS: dict[str, Json] = {
    "region": {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{REGION}']"}}},
    "version": {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{VERSION}']"}}},
    "pod-template-hash": {"valueFrom": {"podTemplateHashValue": "Latest"}},
}
"""What an AnalysisTemplate may ask a Rollout to say, and where the Rollout has it."""


def _strategy(site: Site, analyses: tuple[Json, ...]) -> Json:
    fleet, steps = site.fleet, steps_of(site.release, site.fleet.canary, site.replicas)
    watched = (
        {**_analysis(analyses), "startingStep": first_with_users(steps)} if analyses and site.release.weights else {}
    )
    # An aborted canary that keeps its engines keeps its users: since Argo Rollouts 1.9.0 the weight of a
    # `dynamicStableScale` falls only as fast as the canary shrinks (argo-rollouts#4898, #4841).
    dynamic = fleet.canary.dynamic_stable
    return {
        "stableService": stable_service(site.name),
        "canaryService": canary_service(site.name),
        "stableMetadata": {"labels": {ROLE: STABLE}},
        "canaryMetadata": {"labels": {ROLE: CANARY}},
        "trafficRouting": _traffic_routing(site),
        # Of restarts alone. Where a route splits users, Argo Rollouts heeds neither (argo-rollouts#3284): a version on
        # trial has as many engines more as its steps say, and this is no place to bound them.
        "maxSurge": 1,
        "maxUnavailable": 0,
        **({} if dynamic else {"minPodsPerReplicaSet": fleet.canary.min_replicas}),
        "dynamicStableScale": dynamic,
        **_warm(site),
        **({} if dynamic else {"abortScaleDownDelaySeconds": whole_seconds(fleet.canary.after_abort)}),
        **({"analysis": watched} if watched else {}),
        "steps": steps,
    }


def _warm(site: Site) -> Json:
    """How long and how many versions stay up behind the stable. With dynamicStableScale the first is refused."""
    previous = site.fleet.previous
    if previous is None:
        return {} if site.fleet.canary.dynamic_stable else {"scaleDownDelaySeconds": 30}
    return {"scaleDownDelaySeconds": whole_seconds(previous.keep), "scaleDownDelayRevisionLimit": previous.versions}


def _traffic_routing(site: Site) -> Json:
    return ROUTERS[site.fleet.traffic].routing(site.name, site.fleet.namespace)


def _analysis(templates: tuple[Json, ...]) -> Json:
    """With the arguments that have no value of their own, each once."""
    arguments = [each for template in templates for each in template["spec"].get("args", ())]
    asked = dict.fromkeys(each["name"] for each in arguments if not {"value", "valueFrom"} & each.keys())
    names = [{"templateName": template["metadata"]["name"]} for template in templates]
    return {"templates": names, "args": [{"name": name, **_ARGUMENTS[name]} for name in asked]}
