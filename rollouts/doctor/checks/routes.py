"""Checks of routes: whether they lead to the right Services by the right weights, and let requests through."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rollouts.doctor.model import Check, Finding, Gateway, Severity, Snapshot, of_rollout
from rollouts.doctor.network_policies import ContainerPort, allows, policies_for
from rollouts.doctor.strategy import (
    http_routes,
    in_progress,
    lags,
    route_namespace,
    services,
    template,
    virtual_services,
)
from rollouts.kube.objects import at, containers_of, labels_of, matches, name_of, said
from rollouts.kube.resources import HTTP_ROUTES, NETWORK_POLICIES, PODS, SERVICES, VIRTUAL_SERVICES
from rollouts.manifests.conventions import PORT_NAME
from tidegate.core.model import Json

ROUTE_MISSING = Check(
    code="route-missing",
    severity=Severity.ERROR,
    cause="the Rollout sets weights on a route that is not there: the controller fails at every look, "
    "and no status says so",
    remediation="create the route, or correct its name in trafficRouting",
)
ROUTE_WITHOUT_SERVICE = Check(
    code="route-without-service",
    severity=Severity.ERROR,
    cause="weights are set on backends by the name of their Service; a route without both has nothing to set",
    remediation="name both the stable and the canary Service in one rule of the route",
)
ROUTE_PAST_ROLLOUT = Check(
    code="route-past-rollout",
    severity=Severity.WARNING,
    cause="a rule of the route names only one of the two Services: what it matches follows no weight",
    remediation="name both Services in the rule, or take the rule away",
)
ROUTE_NOT_ACCEPTED = Check(
    code="route-not-accepted",
    severity=Severity.ERROR,
    cause="no Gateway serves the route as it is written: a wrong parent, a listener that does not allow it, or a "
    "backend that cannot be resolved",
    remediation="read the condition; correct parentRefs, the listener's allowedRoutes, or the backend",
)
ROUTE_TO_POOL = Check(
    code="route-to-pool",
    severity=Severity.ERROR,
    cause="the Gateway API plugin sets weights on Services by name and knows no InferencePool, and gateways refuse to "
    "mirror to one",
    remediation="let the route name Services, and put the pool behind them",
)
WEIGHT_DIFFERS = Check(
    code="weight-differs",
    severity=Severity.ERROR,
    cause="the controller believes that its weight is set (the Gateway API plugin verifies nothing), "
    "and the route says another",
    remediation="find who else writes the route (kubectl get -o yaml --show-managed-fields), and stop it",
)
SHARE_STICKS = Check(
    code="share-sticks",
    severity=Severity.WARNING,
    cause="sessions stick to the version they met first: the share of users on the canary only grows, "
    "whatever the weight says",
    remediation=(
        "take session persistence off the weighted rule; assign users by a hash on both sides if they must stay"
    ),
)
MIRROR_LEFT_OVER = Check(
    code="mirror-left-over",
    severity=Severity.WARNING,
    cause="requests are copied though no version is on trial: every copy costs an engine's time and reaches nobody",
    remediation="remove the RequestMirror filter from the route",
)
MIRROR_NOWHERE = Check(
    code="mirror-nowhere",
    severity=Severity.ERROR,
    cause="requests are copied to a Service that is not there: the shadow gate never gets an answer",
    remediation="correct the backendRef of the RequestMirror filter",
)

_CONDITIONS = ("Accepted", "ResolvedRefs")


@of_rollout
def gateway_api(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Every HTTPRoute that the plugin is told of."""
    if snapshot.unread(HTTP_ROUTES):
        return
    for name in http_routes(rollout):
        route = snapshot.named(HTTP_ROUTES, name)
        if route is None:
            where = route_namespace(rollout) or snapshot.namespace
            what = f"there is no HTTPRoute {name} in namespace {where}"
            yield ROUTE_MISSING.found(what, f"{said(rollout)}: httpRoute: {name}")
            continue
        yield from _backends(rollout, route)
        yield from _accepted(route)
        yield from _mirrors(snapshot, rollout, route)
        yield from _sticky(route)


@of_rollout
def istio(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Every VirtualService of this namespace that the controller is told of."""
    if snapshot.unread(VIRTUAL_SERVICES):
        return
    for name in virtual_services(rollout):
        route = snapshot.named(VIRTUAL_SERVICES, name)
        if route is None:
            what = f"there is no VirtualService {name}"
            yield ROUTE_MISSING.found(what, f"{said(rollout)}: virtualService: {name}")
            continue
        weights = [_istio_weights(rule) for rule in at(route, "spec", "http", default=[])]
        if "subset" not in str(at(route, "spec", "http")):
            yield from _named(rollout, route, weights)
        yield from _as_set(rollout, route, weights)


def _backends(rollout: Json, route: Json) -> Iterator[Finding]:
    rules = at(route, "spec", "rules", default=[])
    mirrored = [at(one, "requestMirror", "backendRef") for rule in rules for one in at(rule, "filters", default=[])]
    weighted = [reference for rule in rules for reference in at(rule, "backendRefs", default=[])]
    pools = [one["name"] for one in (*weighted, *mirrored) if one and one.get("kind", "Service") != "Service"]
    if pools:
        yield ROUTE_TO_POOL.found(
            f"{said(route)} sends requests to what is no Service", f"backends: {', '.join(pools)}"
        )
        return
    weights = [{ref["name"]: ref.get("weight", 1) for ref in at(rule, "backendRefs", default=[])} for rule in rules]
    yield from _named(rollout, route, weights)
    yield from _as_set(rollout, route, weights)


def _named(rollout: Json, route: Json, rules: list[dict[str, int]]) -> Iterator[Finding]:
    """Some rule has both Services, and none has one alone: header routes, the plugin's own, have the canary alone."""
    both = set(services(rollout).values())
    if not any(both <= set(rule) for rule in rules):
        named = sorted({name for rule in rules for name in rule})
        yield ROUTE_WITHOUT_SERVICE.found(
            f"{said(route)} has no rule with both {' and '.join(sorted(both))}",
            f"its backends: {', '.join(named) or 'none'}",
        )
        return
    stable = services(rollout).get("stableService")
    alone = [index for index, rule in enumerate(rules) if set(rule) == {stable}]
    if alone and stable not in both - {stable}:
        yield ROUTE_PAST_ROLLOUT.found(
            f"{said(route)} sends some requests to the stable version whatever the weight is",
            *(f"rule {index} names {stable} alone" for index in alone),
        )


def _as_set(rollout: Json, route: Json, rules: list[dict[str, int]]) -> Iterator[Finding]:
    """The canary's share of each weighted rule is the one that the controller says it set."""
    wanted = at(rollout, "status", "canary", "weights", "canary", "weight")
    named = services(rollout)
    stable, canary = named.get("stableService"), named.get("canaryService")
    if wanted is None or lags(rollout):
        return
    for index, rule in enumerate(rules):
        total = sum(rule.values())
        if stable in rule and canary in rule and total:
            share = 100 * rule[canary] / total
            # A weight is a whole percentage; anything nearer than one is rounding.
            if abs(share - wanted) >= 1:
                yield WEIGHT_DIFFERS.found(
                    f"{said(route)} gives the canary {share:.0f} % of requests, not {wanted} %",
                    f"status.canary.weights.canary.weight: {wanted}",
                    f"rule {index}: {', '.join(f'{name} {weight}' for name, weight in rule.items())}",
                )


def _accepted(route: Json) -> Iterator[Finding]:
    for parent in at(route, "status", "parents", default=[]):
        for found in at(parent, "conditions", default=[]):
            if found.get("type") in _CONDITIONS and found.get("status") == "False":
                gateway = at(parent, "parentRef", "name", default="?")
                yield ROUTE_NOT_ACCEPTED.found(
                    f"{said(route)} is not served by Gateway {gateway} as it is written",
                    f"{found['type']} is False: {found.get('reason', '')}: {found.get('message', '')}",
                )


def _mirrors(snapshot: Snapshot, rollout: Json, route: Json) -> Iterator[Finding]:
    for rule in at(route, "spec", "rules", default=[]):
        for item in at(rule, "filters", default=[]):
            target = at(item, "requestMirror", "backendRef", "name")
            if target is None or at(item, "requestMirror", "backendRef", "kind", default="Service") != "Service":
                continue
            if not snapshot.unread(SERVICES) and snapshot.named(SERVICES, target) is None:
                yield MIRROR_NOWHERE.found(f"{said(route)} copies requests to Service {target}, which is not there")
            elif not in_progress(rollout) and not lags(rollout):
                yield MIRROR_LEFT_OVER.found(
                    f"{said(route)} copies requests to Service {target} while no version is on trial"
                )


def _sticky(route: Json) -> Iterator[Finding]:
    for index, rule in enumerate(at(route, "spec", "rules", default=[])):
        kind = at(rule, "sessionPersistence")
        if kind is not None and len(at(rule, "backendRefs", default=[])) > 1:
            yield SHARE_STICKS.found(
                f"{said(route)} keeps sessions on the version they met first",
                f"rule {index}: sessionPersistence of type {kind.get('type', 'Cookie')}",
            )


def _istio_weights(rule: Json) -> dict[str, int]:
    """Host and weight of each destination; a host may be written with its domain."""
    routes = at(rule, "route", default=[])
    return {
        str(at(one, "destination", "host", default="")).split(".")[0]: int(
            at(one, "weight", default=100 if len(routes) == 1 else 0)
        )
        for one in routes
    }


GATEWAY_SHUT_OUT = Check(
    code="gateway-shut-out",
    severity=Severity.ERROR,
    cause="the network policies of the engines let nothing in from where the gateway's proxies run (those of Envoy "
    "Gateway run in its own namespace, wherever the gateway is): users get errors",
    remediation="name that namespace in fleet.gateway.pods_in and apply the set-up part of `tidegate rollout render`, "
    "or let it in by a policy of your own",
)


@of_rollout
def admitted(snapshot: Snapshot, rollout: Json) -> Iterator[Finding]:
    """Some proxy of every gateway may ask every engine."""
    port = _port(snapshot, rollout)
    if snapshot.unread(NETWORK_POLICIES) or port is None:
        return
    for gateway in snapshot.gateways:
        for policies in _policies(snapshot, rollout):
            if policies and gateway.proxies and not _reaches(gateway, policies, port):
                yield _shut_out(gateway, policies)
                break


def _policies(snapshot: Snapshot, rollout: Json) -> Iterator[list[Json]]:
    """Those over each engine; labels of pods and of their template differ by what Argo Rollouts adds."""
    selector = at(rollout, "spec", "selector", default={})
    engines = [labels_of(pod) for pod in snapshot.all(PODS) if selector and matches(selector, labels_of(pod))]
    for labels in engines or [labels_of(template(snapshot, rollout))]:
        yield policies_for(snapshot.all(NETWORK_POLICIES), labels)


def _reaches(gateway: Gateway, policies: list[Json], port: ContainerPort) -> bool:
    return any(allows(policy, proxy, port) for policy in policies for proxy in gateway.proxies)


def _shut_out(gateway: Gateway, policies: list[Json]) -> Finding:
    places = sorted({proxy.namespace for proxy in gateway.proxies})
    return GATEWAY_SHUT_OUT.found(
        f"no request of Gateway {gateway.name} reaches the engines: its proxies run in namespace {', '.join(places)}",
        *(f"pod {name_of(proxy.pod)} in namespace {proxy.namespace}" for proxy in gateway.proxies[:1]),
        *(f"{said(policy)} lets in: {_rules(policy)}" for policy in policies),
    )


def _rules(policy: Json) -> str:
    rules = at(policy, "spec", "ingress", default=[])
    return json.dumps(rules, separators=(",", ":")) if rules else "nothing"


def _port(snapshot: Snapshot, rollout: Json) -> ContainerPort | None:
    """Where engines are asked; None where none is named so, which is another finding."""
    ports = [
        one for container in containers_of(template(snapshot, rollout)) for one in at(container, "ports", default=[])
    ]
    found = next((one for one in ports if one.get("name") == PORT_NAME), None)
    return ContainerPort(name=PORT_NAME, number=int(found["containerPort"])) if found else None


CHECKS = (
    ROUTE_MISSING,
    ROUTE_WITHOUT_SERVICE,
    ROUTE_PAST_ROLLOUT,
    ROUTE_NOT_ACCEPTED,
    ROUTE_TO_POOL,
    WEIGHT_DIFFERS,
    SHARE_STICKS,
    MIRROR_LEFT_OVER,
    MIRROR_NOWHERE,
    GATEWAY_SHUT_OUT,
)
"""In the order of docs/reference/doctor.md."""

INSPECTIONS = (
    gateway_api,
    istio,
    admitted,
)
