"""How a Rollout brings a version to its users, as Argo Rollouts reads it.

Fields and their bounds: `pkg/apis/rollouts/v1alpha1/types.go` and `pkg/apis/rollouts/validation/validation.go` of
argo-rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta

from rollouts.kube.model import Json
from rollouts.manifests.conventions import (
    CANARY,
    GATEWAY_PLUGIN,
    REGION,
    ROLE,
    STABLE,
    USERS,
    VERSION,
    canary_service,
    stable_service,
)
from rollouts.manifests.manifest import Site
from rollouts.manifests.release import Trial
from rollouts.manifests.spec import Strategy
from rollouts.manifests.steps import first_with_users, steps_of
from rollouts.manifests.traffic_spec import Traffic
from tidegate.core.errors import UsageError

_ARGUMENTS: dict[str, Json] = {
    "region": {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{REGION}']"}}},
    "version": {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{VERSION}']"}}},
    "pod-template-hash": {"valueFrom": {"podTemplateHashValue": "Latest"}},
}
"""What an AnalysisTemplate may ask a Rollout to say, and where the Rollout has it."""


def strategy(site: Site, trial: Trial, analyses: tuple[Json, ...]) -> Json:
    """The Rollout's `strategy`; `analyses` are AnalysisTemplates of the same namespace.

    Raises:
        UsageError: a template asks for what a Rollout does not know, or never ends where it has to.
    """
    if site.fleet.strategy is Strategy.BLUE_GREEN:
        return {"blueGreen": _blue_green(site, analyses)}
    return {"canary": _canary(site, trial, analyses)}


def _canary(site: Site, trial: Trial, analyses: tuple[Json, ...]) -> Json:
    fleet, steps = site.fleet, steps_of(trial, site.fleet.canary, site.replicas)
    watched = {**_analysis(analyses), "startingStep": first_with_users(steps)} if analyses and trial.weights else {}
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
        "minPodsPerReplicaSet": fleet.canary.least,
        "dynamicStableScale": fleet.canary.dynamic_stable,
        **_warm(site),
        "abortScaleDownDelaySeconds": seconds(fleet.canary.after_abort),
        **({"analysis": watched} if watched else {}),
        "steps": steps,
    }


def _blue_green(site: Site, analyses: tuple[Json, ...]) -> Json:
    preview = site.fleet.canary.replicas
    for template in analyses:
        if not all("count" in metric for metric in template["spec"]["metrics"]):
            raise UsageError(
                f"{template['metadata']['name']} never ends, and a blue-green rollout waits for its end",
                hint="pass templates whose metrics have a count",
            )
    return {
        "activeService": stable_service(site.name),
        "previewService": canary_service(site.name),
        "activeMetadata": {"labels": {ROLE: STABLE}},
        "previewMetadata": {"labels": {ROLE: CANARY}},
        "autoPromotionEnabled": False,
        **({"previewReplicaCount": preview} if preview else {}),
        "maxUnavailable": 0,
        **_warm(site),
        "abortScaleDownDelaySeconds": seconds(site.fleet.canary.after_abort),
        **({"postPromotionAnalysis": _analysis(analyses)} if analyses else {}),
    }


def _warm(site: Site) -> Json:
    """How long and how many versions stay up behind the stable. With dynamicStableScale the first is refused."""
    previous = site.fleet.previous
    if previous is None:
        return {} if site.fleet.canary.dynamic_stable else {"scaleDownDelaySeconds": 30}
    return {"scaleDownDelaySeconds": seconds(previous.keep), "scaleDownDelayRevisionLimit": previous.versions}


def _traffic_routing(site: Site) -> Json:
    if site.fleet.traffic is Traffic.ISTIO:
        return {"istio": {"virtualService": {"name": site.name, "routes": [USERS]}}}
    return {"plugins": {GATEWAY_PLUGIN: {"httpRoute": site.name, "namespace": site.fleet.namespace}}}


def _analysis(templates: tuple[Json, ...]) -> Json:
    names = [{"templateName": template["metadata"]["name"]} for template in templates]
    return {"templates": names, "args": [{"name": name, **_argument(name)} for name in _asked(templates)]}


def _asked(templates: Iterable[Json]) -> list[str]:
    """Arguments without a value of their own, each once."""
    arguments = [each for template in templates for each in template["spec"].get("args", ())]
    return list(dict.fromkeys(each["name"] for each in arguments if not {"value", "valueFrom"} & each.keys()))


def _argument(name: str) -> Json:
    if name not in _ARGUMENTS:
        raise UsageError(
            f"an AnalysisTemplate asks for {name}, which a Rollout does not know",
            hint=f"give it a value; a Rollout says {', '.join(_ARGUMENTS)}",
        )
    return _ARGUMENTS[name]


def seconds(length: timedelta) -> int:
    """Whole seconds, as all of Argo Rollouts' delays are; never 0 of something, which often means never."""
    return math.ceil(length.total_seconds())
