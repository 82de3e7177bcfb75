"""Whether the strategy can do what its steps say."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rollouts.doctor.checking import of_rollout
from rollouts.doctor.model import Ailment, Finding, Severity, Snapshot
from rollouts.doctor.objects import at, said
from rollouts.doctor.strategy import canary, gateway_plugins, replicas, routers, routing, services, steps
from rollouts.kube.model import Json
from rollouts.manifests.schema import problems_in

WEIGHTS_BLIND = Ailment(
    code="weights-blind",
    severity=Severity.ERROR,
    cause="trafficRouting names no router: a field that Argo Rollouts does not have, such as gatewayAPI, is dropped "
    "by the API server without a word, and routes keep the weights they had",
    cure="write it as trafficRouting.plugins.argoproj-labs/gatewayAPI, or as a field that exists, "
    "and apply with fieldValidation=Strict",
)
FIELD_DROPPED = Ailment(
    code="field-dropped",
    severity=Severity.ERROR,
    cause="what was applied has a field that the definition does not know; the API server dropped it without a word",
    cure="correct the field, and apply with fieldValidation=Strict (`kubectl apply --validate=strict`)",
)
COARSE_WEIGHTS = Ailment(
    code="weights-by-pods",
    severity=Severity.WARNING,
    cause="without traffic routing a weight is a share of pods, and there are too few pods for it",
    cure="route traffic through the Gateway API or Istio, or choose weights that pods can make",
)
MIRROR_REFUSED = Ailment(
    code="mirror-refused",
    severity=Severity.ERROR,
    cause="up to v1.9 the controller takes setMirrorRoute for Istio only, and marks the Rollout InvalidSpec",
    cure="remove the step; `tidegate deliver` mirrors by a filter of its own on the HTTPRoute",
)
MIRROR_DOES_NOTHING = Ailment(
    code="mirror-does-nothing",
    severity=Severity.ERROR,
    cause="the Gateway API plugin answers setMirrorRoute with success and copies nothing (its issue 32)",
    cure="remove the step; `tidegate deliver` mirrors by a filter of its own on the HTTPRoute",
)
MIRROR_WITHOUT_MATCH = Ailment(
    code="mirror-without-match",
    severity=Severity.ERROR,
    cause="on Istio, setMirrorRoute without match removes the mirror; it does not mirror everything",
    cure="give the step a match for everything, such as method with regex .*",
)
ROUTE_NOT_MANAGED = Ailment(
    code="route-not-managed",
    severity=Severity.ERROR,
    cause="a header or mirror route must be listed in trafficRouting.managedRoutes; the Rollout is InvalidSpec without",
    cure="list the route's name in managedRoutes",
)
HEADER_ROUTE_LOST = Ailment(
    code="header-route-lost",
    severity=Severity.WARNING,
    cause="a canary without available pods loses its header route, which is written again only while the step that "
    "sets it is the current one",
    cure="scale the canary to a pod or more (setCanaryScale) before setHeaderRoute, and keep it there to the end",
)
DYNAMIC_STABLE = Ailment(
    code="stable-released-early",
    severity=Severity.WARNING,
    cause="dynamicStableScale takes pods from the stable as the weight rises: an abort sends everybody to too few, "
    "and an engine takes minutes to start",
    cure="set dynamicStableScale: false; where GPUs do not suffice for both, go back as slowly as pods become ready",
)
CANARY_WITHOUT_PODS = Ailment(
    code="canary-without-pods",
    severity=Severity.ERROR,
    cause="a step gives users to a canary that setCanaryScale left without pods",
    cure="scale the canary before its first weight, or end with setCanaryScale: {matchTrafficWeight: true}",
)
NOT_WARM = Ailment(
    code="previous-not-kept-warm",
    severity=Severity.NOTE,
    cause="scaleDownDelaySeconds is short: soon after a promotion, going back means a cold start",
    cure="set scaleDownDelaySeconds to the bake and more, with scaleDownDelayRevisionLimit and rollbackWindow",
)
AILMENTS = (
    WEIGHTS_BLIND,
    FIELD_DROPPED,
    COARSE_WEIGHTS,
    MIRROR_REFUSED,
    MIRROR_DOES_NOTHING,
    MIRROR_WITHOUT_MATCH,
    ROUTE_NOT_MANAGED,
    HEADER_ROUTE_LOST,
    DYNAMIC_STABLE,
    CANARY_WITHOUT_PODS,
    NOT_WARM,
)

FINE_POINTS = 10
"""Percentage points by which a share of pods may miss its weight."""
DEFAULT_DELAY = 30
"""scaleDownDelaySeconds of a Rollout that does not say."""
WARM_SECONDS = 300
"""Less than this is over before anybody has looked at a promoted version."""


@of_rollout
def weights(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Somebody sets the weights, and they can be made."""
    if dropped := _dropped(rollout):
        yield FIELD_DROPPED.found(f"{said(rollout)} has lost what was applied", *dropped)
        return
    if not any("setWeight" in step for step in steps(rollout)):
        return
    if routers(rollout):
        return
    if {"stableService", "canaryService"} <= set(services(rollout)):
        yield WEIGHTS_BLIND.found(
            f"{said(rollout)} has a Service for each version, and nobody who sets weights on routes to them",
            f"spec.strategy.canary.trafficRouting: {routing(rollout) or 'empty'}",
        )
    else:
        yield from _coarse(rollout)


@of_rollout
def mirrors(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """A step that mirrors does mirror."""
    told = [step["setMirrorRoute"] for step in steps(rollout) if "setMirrorRoute" in step]
    if told and gateway_plugins(rollout):
        version = snapshot.controller.version
        old = version is not None and version < (1, 10)
        ailment = MIRROR_REFUSED if old else MIRROR_DOES_NOTHING
        known = ".".join(map(str, version)) if version else "unknown"
        yield ailment.found(
            f"{said(rollout)} mirrors with setMirrorRoute through the Gateway API plugin",
            f"{len(told)} steps setMirrorRoute; the controller's version is {known}",
        )
    elif "istio" in routing(rollout):
        matched: set[str] = set()
        for one in told:
            if at(one, "match"):
                matched.add(one["name"])
            elif one["name"] not in matched or "percentage" in one:
                yield MIRROR_WITHOUT_MATCH.found(
                    f"{said(rollout)}: setMirrorRoute {one['name']} mirrors nothing", "it has no match"
                )


@of_rollout
def managed(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Routes that steps set are the controller's to set."""
    listed = {route.get("name") for route in at(routing(rollout), "managedRoutes", default=[])}
    for step in steps(rollout):
        for kind in ("setHeaderRoute", "setMirrorRoute"):
            name = at(step, kind, "name")
            if name and name not in listed:
                yield ROUTE_NOT_MANAGED.found(
                    f"{said(rollout)}: {kind} {name} is in no managedRoutes",
                    f"managedRoutes: {', '.join(sorted(map(str, listed))) or 'none'}",
                )


@of_rollout
def pods_behind(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """No step gives users to a canary without pods, nor lets it lose its header route for want of them."""
    if not routers(rollout):
        return
    scale: Json = {}
    weight, header = 0, ""
    for index, step in enumerate(steps(rollout)):
        scale, weight = step.get("setCanaryScale", scale), int(step.get("setWeight", weight))
        if "setHeaderRoute" in step:
            header = step["setHeaderRoute"]["name"] if at(step, "setHeaderRoute", "match") else ""
        if _has_pods(scale, weight) or not (weight or header):
            continue
        evidence = f"step {index}: {_written(step)}; canary scaled to {_written(scale) or 'its weight'}"
        if weight:
            yield CANARY_WITHOUT_PODS.found(
                f"{said(rollout)}: step {index} has {weight} % of users on a canary without pods", evidence
            )
        else:
            yield HEADER_ROUTE_LOST.found(
                f"{said(rollout)}: at step {index} no pod is behind the header route {header}", evidence
            )
        return


@of_rollout
def way_back(_: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Going back needs no cold start."""
    if not routers(rollout):
        return
    if at(canary(rollout), "dynamicStableScale"):
        yield DYNAMIC_STABLE.found(
            f"{said(rollout)} scales its stable down as the weight rises", "dynamicStableScale: true"
        )
    delay = int(at(canary(rollout), "scaleDownDelaySeconds", default=DEFAULT_DELAY))
    if delay < WARM_SECONDS:
        yield NOT_WARM.found(
            f"{said(rollout)} keeps its previous version for {delay} s", f"scaleDownDelaySeconds: {delay}"
        )


def _dropped(rollout: Json) -> list[str]:
    """Fields that kubectl applied last, that the object does not have, and that no Rollout has."""
    text = at(rollout, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration", default="{}")
    try:
        applied = json.loads(text)
    except ValueError:
        return []
    if not isinstance(applied, dict) or "kind" not in applied:
        return []
    unknown = [problem for problem in problems_in(applied) if problem.unknown]
    return [f"applied and dropped: {one.path}" for one in unknown if at(rollout, *one.where) is None]


def _coarse(rollout: Json) -> Iterator[Finding]:
    wanted = replicas(rollout)
    for index, step in enumerate(steps(rollout)):
        weight = at(step, "setWeight", default=0)
        # One pod at least on each side, as the controller rounds.
        share = 100 * max(1, round(wanted * weight / 100)) / max(wanted, 1)
        if 0 < weight < 100 and abs(share - weight) > FINE_POINTS:
            yield COARSE_WEIGHTS.found(
                f"{said(rollout)}: step {index} wants {weight} % and gets {share:.0f} %", f"{wanted} replicas"
            )
            return


def _has_pods(scale: Json, weight: int) -> bool:
    """As the controller scales: by setCanaryScale until matchTrafficWeight, else by the weight."""
    if not scale or at(scale, "matchTrafficWeight"):
        return weight > 0
    return bool(at(scale, "replicas") or at(scale, "weight"))


def _written(step: Json) -> str:
    return ", ".join(f"{key}: {value}" for key, value in step.items())


CHECKS = (weights, mirrors, managed, pods_behind, way_back)
