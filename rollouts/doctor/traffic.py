"""Checks of Services and routes: whether they lead to the right pods by the right weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rollouts.argo.model import Rollout
from rollouts.argo.state import waiting_for_controller
from rollouts.doctor.model import Observation, Snapshot, error, warning
from rollouts.doctor.strategy import http_routes, on_trial, route_namespace, services, template, virtual_services
from rollouts.kube.model import Resource
from rollouts.kube.objects import Labels, at, labels_of, name_of, owned_by, said, selects
from rollouts.kube.resources import HTTP_ROUTES, PODS, REPLICA_SETS, SERVICES, VIRTUAL_SERVICES
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH as HASH


@error(
    "service-missing",
    cause="the Rollout names a Service that is not there; the controller marks it InvalidSpec and does nothing",
    remediation="create the Service, or correct the name in the Rollout's strategy",
)
def _service_missing(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    for field, name in services(rollout).items():
        if not snapshot.unread(SERVICES) and snapshot.named(SERVICES, name) is None:
            yield f"there is no Service {name}", f"{said(rollout)}: {field}: {name}"


@error(
    "service-wrong-pods",
    cause="the Service selects no pod of the Rollout (requests get 503), pods of another workload, or both "
    "versions at once, so that no weight separates them",
    remediation="make the selector a part of the pod template's labels that only this Rollout's pods have, and "
    "stop whoever removes rollouts-pod-template-hash from it",
)
def _service_wrong_pods(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    labels = at(template(snapshot, rollout), "metadata", "labels")
    mine = [one for one in snapshot.all(REPLICA_SETS) if owned_by(one, rollout)]
    others = [pod for pod in snapshot.all(PODS) if not any(owned_by(pod, one) for one in mine)]
    pair = [found for name in services(rollout).values() if (found := snapshot.named(SERVICES, name))]
    for service in pair:
        selector: Labels = at(service, "spec", "selector", default={})
        # No other workload's pods have the controller's part of the selector, and no template has it.
        own_part = {key: value for key, value in selector.items() if key != HASH}
        also = sorted(name_of(pod) for pod in others if selects(selector, labels_of(pod)))
        if labels is not None and not selects(own_part, labels):
            yield (
                f"{said(service)} selects no pod of {said(rollout)}",
                f"selector: {_written(own_part)}",
                f"labels of the pod template: {_written(labels)}",
            )
        elif also:
            yield (
                f"{said(service)} selects pods that are not of {said(rollout)}",
                f"selector: {_written(selector)}",
                f"also selected: {', '.join(also[:3])}",
            )
    hashes = {name_of(service): at(service, "spec", "selector", HASH) for service in pair}
    overlap = len(hashes) == 2 and (len(set(hashes.values())) < 2 or None in hashes.values())
    if overlap and _canary_serves(rollout, mine):
        yield (
            f"Services {' and '.join(hashes)} select the same pods while two versions run",
            *(f"Service {name}: {HASH}: {value or 'not set'}" for name, value in hashes.items()),
        )


def _canary_serves(rollout: Json, replica_sets: list[Json]) -> bool:
    """Whether a version on trial has pods: until then the controller leaves its Service where it was.

    As `ensureSVCTargets` of Argo Rollouts, which waits for a replica set to be available.
    """
    current = Rollout(rollout).pod_hash
    available = [at(one, "status", "availableReplicas") for one in replica_sets if labels_of(one).get(HASH) == current]
    return on_trial(rollout) and not waiting_for_controller(rollout) and any(available)


def _written(labels: Labels) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"


def _routes(snapshot: Snapshot, rollout: Json) -> Iterator[tuple[Resource, str, Json | None]]:
    """Every route that the controller is told of and that may be read; None for one that is not there."""
    for resource, names in ((HTTP_ROUTES, http_routes(rollout)), (VIRTUAL_SERVICES, virtual_services(rollout))):
        if not snapshot.unread(resource):
            yield from ((resource, name, snapshot.named(resource, name)) for name in names)


def _weighted(snapshot: Snapshot, rollout: Json) -> Iterator[tuple[Json, list[Mapping[str, int]]]]:
    """Every route that is there, with the weight of each backend in each of its rules."""
    for resource, _, route in _routes(snapshot, rollout):
        rules = at(route, "spec", "rules" if resource == HTTP_ROUTES else "http", default=[])
        # Subsets of one host are told apart by a DestinationRule, which is not read.
        if route and "'subset':" not in str(rules):
            yield route, [_weights(rule) for rule in rules]


def _weights(rule: Json) -> Mapping[str, int]:
    if "route" not in rule:
        return {ref["name"]: ref.get("weight", 1) for ref in rule.get("backendRefs") or []}
    alone = 100 if len(rule["route"]) == 1 else 0
    # Istio's hosts may be written with their domain.
    hosts = {str(at(one, "destination", "host")).split(".")[0]: one.get("weight") for one in rule["route"]}
    return {host: alone if weight is None else int(weight) for host, weight in hosts.items()}


@error(
    "route-missing",
    cause="the Rollout sets weights on a route that is not there: the controller fails each time it reconciles, "
    "and no status says so",
    remediation="create the route, or correct its name in trafficRouting",
)
def _route_missing(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    for resource, name, route in _routes(snapshot, rollout):
        if route is None:
            where = (resource == HTTP_ROUTES and route_namespace(rollout)) or snapshot.namespace
            yield (
                f"there is no {resource.kind} {name} in namespace {where}",
                f"named in trafficRouting of {said(rollout)}",
            )


@error(
    "route-without-service",
    cause="weights are set on backends by the name of their Service; a route without both has nothing to set",
    remediation="name both the stable and the canary Service in one rule of the route",
)
def _route_without_service(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    both = set(services(rollout).values())
    for route, rules in _weighted(snapshot, rollout):
        if not any(both <= set(rule) for rule in rules):
            named = ", ".join(sorted({name for rule in rules for name in rule}))
            yield (
                f"{said(route)} has no rule with both {' and '.join(sorted(both))}",
                f"its backends: {named or 'none'}",
            )


@warning(
    "route-past-rollout",
    cause="a rule of the route names only the stable Service: what it matches follows no weight",
    remediation="name both Services in the rule, or delete the rule",
)
def _route_past_rollout(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    both = set(services(rollout).values())
    stable = services(rollout).get("stableService")
    for route, rules in _weighted(snapshot, rollout):
        alone = [index for index, rule in enumerate(rules) if set(rule) == {stable}]
        if alone and len(both) > 1 and any(both <= set(rule) for rule in rules):
            yield (
                f"{said(route)} sends some requests to the stable version whatever the weight is",
                *(f"rule {index} names {stable} alone" for index in alone),
            )


@error(
    "route-not-accepted",
    cause="no Gateway serves the route as it is written: a wrong parent, a listener that does not allow it, or a "
    "backend that cannot be resolved",
    remediation="read the condition; correct parentRefs, the listener's allowedRoutes, or the backend",
)
def _route_not_accepted(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    for _, _, route in _routes(snapshot, rollout):
        for parent in at(route, "status", "parents", default=[]):
            for found in at(parent, "conditions", default=[]):
                if found.get("type") in {"Accepted", "ResolvedRefs"} and found.get("status") == "False":
                    gateway = at(parent, "parentRef", "name", default="?")
                    yield (
                        f"{said(route or {})} is not served by Gateway {gateway} as it is written",
                        f"{found['type']} is False: {found.get('reason', '')}: {found.get('message', '')}",
                    )


@error(
    "weight-differs",
    cause="the controller believes that its weight is set (the Gateway API plugin verifies nothing), "
    "and the route says another",
    remediation="find who else writes the route (kubectl get -o yaml --show-managed-fields), and stop it",
)
def _weight_differs(snapshot: Snapshot, rollout: Json) -> Iterator[Observation]:
    wanted = at(rollout, "status", "canary", "weights", "canary", "weight")
    named = services(rollout)
    stable, canary = named.get("stableService", ""), named.get("canaryService", "")
    if wanted is None or waiting_for_controller(rollout):
        return
    for route, rules in _weighted(snapshot, rollout):
        for index, rule in enumerate(rules):
            total = sum(rule.values())
            share = 100 * rule[canary] / total if total and stable in rule and canary in rule else wanted
            # A weight is a whole percentage; anything nearer than one is rounding.
            if abs(share - wanted) >= 1:
                yield (
                    f"{said(route)} gives the canary {share:.0f} % of requests, not {wanted} %",
                    f"status.canary.weights.canary.weight: {wanted}",
                    f"rule {index}: {', '.join(f'{name} {weight}' for name, weight in rule.items())}",
                )


CHECKS = (
    _service_missing,
    _service_wrong_pods,
    _route_missing,
    _route_without_service,
    _route_past_rollout,
    _route_not_accepted,
    _weight_differs,
)
