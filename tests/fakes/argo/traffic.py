"""The share of users that the canary gets: Services, the Gateway API plugin and Istio, and the status that says so.

Upstream: `rollout/trafficrouting.go` (`reconcileTrafficRouting`), called in `rollout/canary.go` before replica sets
are scaled and before the status is written: an error here freezes the status, with `observedGeneration` behind.
`rollout/service.go`; `rollout/trafficrouting/trafficroutingutil.go` (the interface of a router),
`rollout/trafficrouting/plugin/plugin.go`, rollouts-plugin-trafficrouter-gatewayapi
`pkg/plugin/{plugin,httproute}.go`, `rollout/trafficrouting/istio/istio.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fakes.argo.objects import HASH_LABEL, MANAGED_BY, ReplicaSet, annotate
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.replica_sets import (
    at_desired_counts,
    current_set_weight,
    previous_set_weight,
    selector_of,
    weight_of_way_back,
)

from rollouts.kube.resources import HTTP_ROUTES, VIRTUAL_SERVICES
from tidegate.core.model import Json

GATEWAY_PLUGIN = "argoproj-labs/gatewayAPI"
IN_PROGRESS = "rollouts.argoproj.io/gatewayapi-canary"
"""On a route while its canary has weight (`pkg/plugin/labels.go`)."""
_CANNOT_START = "unable to start plugin system: unable to get plugin client ({}) for ping: exec: Stdout already set"
"""As in argo-rollouts#3918."""
BACKEND_NOT_FOUND = "backendRef was not found in httpRoute"


class Router(Protocol):
    """`TrafficRoutingReconciler`; `VerifyWeight` is left out, since neither of these verifies anything."""

    def set_weight(self, weight: int) -> None: ...


def routers_of(r: Reconciliation) -> Iterator[Router]:
    """All that the strategy names.

    Raises:
        ReconcileError: a plugin is unknown or does not start.
    """
    traffic = r.rollout.traffic or {}
    if "istio" in traffic:
        yield Istio(r, traffic["istio"])
    for name, config in traffic.get("plugins", {}).items():
        if name != GATEWAY_PLUGIN:
            raise ReconcileError(f"plugin {name} not configured in configmap")
        if r.world.plugin_broken:
            raise ReconcileError(f"failed to get traffic router plugin {name}: {_CANNOT_START.format(name)}")
        yield GatewayApi(r, config)


class GatewayApi:
    """Weights of backends on HTTPRoutes, found by the Services' names alone."""

    def __init__(self, r: Reconciliation, config: Json) -> None:
        self._r = r
        self._config = config
        self._names = (
            [config["httpRoute"]] if "httpRoute" in config else [one["name"] for one in config.get("httpRoutes", ())]
        )

    def set_weight(self, weight: int) -> None:
        """Every rule that names canary or stable; each must be named somewhere. Filters stay as they are."""
        canary, stable = (str(self._r.rollout.strategy.get(f"{arm}Service")) for arm in ("canary", "stable"))
        for route in self._routes():
            for service, share in ((canary, weight), (stable, 100 - weight)):
                references = [one for rule in route["spec"].get("rules", ()) for one in _backends(rule, service)]
                if not references:
                    raise ReconcileError(BACKEND_NOT_FOUND)
                for reference in references:
                    reference["weight"] = share
            self._mark(route, in_progress=weight > 0)
            self._r.world.update(route)

    def _routes(self) -> Iterator[Json]:
        namespace = self._config.get("namespace", self._r.rollout.namespace)
        for name in self._names:
            found = self._r.world.find(HTTP_ROUTES, name, namespace)
            if found is None:
                raise ReconcileError(f'httproutes.gateway.networking.k8s.io "{name}" not found')
            yield found

    def _mark(self, route: Json, *, in_progress: bool) -> None:
        if self._config.get("disableInProgressLabel"):
            return
        labels = {key: text for key, text in route["metadata"].get("labels", {}).items() if key != IN_PROGRESS}
        if in_progress:
            labels[IN_PROGRESS] = "in-progress"
        if labels or "labels" in route["metadata"]:
            route["metadata"]["labels"] = labels


class Istio:
    """Weights of a VirtualService's destinations, by host."""

    def __init__(self, r: Reconciliation, config: Json) -> None:
        self._r = r
        self._services = [config["virtualService"]] if "virtualService" in config else config.get("virtualServices", [])

    def set_weight(self, weight: int) -> None:
        for wanted, service in self._virtual_services():
            for route in self._weighted(wanted, service):
                for destination in route["route"]:
                    canary = _is_host(self._host("canary"), destination["destination"])
                    destination["weight"] = weight if canary else 100 - weight
            self._r.world.update(service)

    def _virtual_services(self) -> Iterator[tuple[list[str], Json]]:
        for config in self._services:
            name, _, namespace = str(config["name"]).partition(".")
            found = self._r.world.find(VIRTUAL_SERVICES, name, namespace or self._r.rollout.namespace)
            if found is None:
                raise ReconcileError(f'virtualservices.networking.istio.io "{name}" not found')
            yield config.get("routes", []), found

    def _weighted(self, wanted: list[str], service: Json) -> list[Json]:
        """The routes that the strategy names, or the only one there is."""
        routes = service["spec"].get("http", [])
        chosen = [one for one in routes if one.get("name") in wanted] if wanted else routes
        if not chosen or (not wanted and len(routes) != 1):
            raise ReconcileError("spec.http[] should have a single route or be named in the rollout")
        for route in chosen:
            found = [one["destination"] for one in route.get("route", ())]
            if not all(any(_is_host(self._host(arm), one) for one in found) for arm in ("canary", "stable")):
                raise ReconcileError("Stable and canary services not found among the route's destinations")
        return chosen

    def _host(self, arm: str) -> str:
        return str(self._r.rollout.strategy.get(f"{arm}Service"))


def _is_host(wanted: str, destination: Json) -> bool:
    """A host may be written with its namespace: `name.namespace.svc.cluster.local`."""
    return str(destination.get("host", "")).split(".")[0] == wanted


def _backends(rule: Json, service: str) -> Iterator[Json]:
    return (one for one in rule.get("backendRefs", ()) if one.get("name") == service)


def switch(r: Reconciliation, service: Json, pod_hash: str) -> None:
    """Make it select this hash, and mark it as the Rollout's."""
    old = selector_of(service)
    if old == pod_hash and MANAGED_BY in (service["metadata"].get("annotations") or {}):
        return
    annotate(service, **{MANAGED_BY: r.rollout.name})
    service["spec"]["selector"] = (service["spec"].get("selector") or {}) | {HASH_LABEL: pod_hash}
    r.world.update(service)


def ensure_targets(r: Reconciliation, name: str | None, rs: ReplicaSet | None, *, when_available: bool = True) -> None:
    """Point a Service at a replica set, once that has an available pod; a Service taken over, once it has all."""
    if rs is None or not name:
        return
    service = r.service(name)
    if selector_of(service) == rs.hash:
        return
    adopted = MANAGED_BY not in (service["metadata"].get("annotations") or {})
    wanted = max(rs.replicas, 1) if adopted else 1
    if not when_available or rs.available >= wanted:
        switch(r, service, rs.hash)


def reconcile_canary_services(r: Reconciliation) -> None:
    """Stable to the stable, canary to the new one.

    An abort points the canary's Service in `trafficrouting.go`, once the weight is 0. Upstream points it
    to the new one here first and so back and forth in each reconciliation; that is left out.
    """
    canary = r.rollout.strategy.get("canaryService")
    ensure_targets(r, r.rollout.strategy.get("stableService"), r.stable)
    if not r.pauses.aborted and going_back_by_weight(r) is None:
        ensure_targets(r, canary, r.new)


def going_back_by_weight(r: Reconciliation) -> str | None:
    """The hash that still has traffic while a stable that follows its weight grows again.

    With `dynamicStableScale`, when the template went back to the stable's (`isDynamicallyRollingBackToStable`).
    """
    if not (r.rollout.fully_promoted and r.rollout.traffic is not None and r.rollout.dynamic and r.rollout.weights):
        return None
    last = str(r.rollout.weights["canary"].get("podTemplateHash", ""))
    grown = r.new is None or last == r.new.hash or r.new.available >= r.rollout.replicas
    return None if grown else last


def reconcile_traffic(r: Reconciliation) -> None:
    """Set the weight that the state calls for.

    Raises:
        ReconcileError: the plugin cannot be loaded, or the route is not what it should be.
    """
    if r.rollout.traffic is None:
        r.status["canary"].pop("weights", None)
        return
    for router in routers_of(r):
        weight, canary_hash = _desired(r)
        router.set_weight(weight)
        _write_weights(r, weight, canary_hash)


def _desired(r: Reconciliation) -> tuple[int, str]:
    """The canary's weight, and the hash that gets it."""
    new_hash = r.new.hash if r.new is not None else ""
    if (last := going_back_by_weight(r)) is not None:
        return _weight_back(r), last
    if r.rollout.fully_promoted:
        return 0, new_hash
    if r.pauses.aborted:
        weight = _weight_back(r)
        if not r.rollout.dynamic or weight == 0:
            ensure_targets(r, r.rollout.strategy.get("canaryService"), r.stable, when_available=False)
        return weight, new_hash
    if r.new is None or r.new.available == 0:
        return 0, new_hash
    if r.rollout.promoting_fully:
        return _weight_of_full_promotion(r), new_hash
    return _weight_of_step(r), new_hash


def _weight_back(r: Reconciliation) -> int:
    """0 at once; with `dynamicStableScale` step by step, held while the stable lacks pods for the next, never up again.

    `calculateDesiredWeightOnAbortOrStableRollback`.
    """
    if not r.rollout.dynamic or r.stable is None:
        return 0
    lacking = 100 - 100 * r.stable.available // max(r.rollout.replicas, 1)
    weight, now = weight_of_way_back(r.rollout, r.new, r.stable), r.rollout.weights
    if now is None:
        return max(weight, lacking)
    held: int = now["canary"]["weight"]
    return held if lacking > weight else min(weight, held)


def _weight_of_full_promotion(r: Reconciliation) -> int:
    """What it was until all pods are there; with `dynamicStableScale` as many as are."""
    if r.rollout.dynamic and r.new is not None:
        return 100 * r.new.available // max(r.rollout.replicas, 1)
    return int(r.rollout.weights["canary"]["weight"]) if r.rollout.weights else 0


def _weight_of_step(r: Reconciliation) -> int:
    """The last `setWeight`; the one before while pods are missing; 100 after the last step."""
    index = r.rollout.step_index
    if index is None:
        return 0
    if not at_desired_counts(r.rollout, r.new, r.stable, None):
        return previous_set_weight(r.rollout, index)
    return current_set_weight(r.rollout) if r.rollout.step is not None else 100


def _write_weights(r: Reconciliation, weight: int, canary_hash: str) -> None:
    """`calculateWeightStatus`; `verified` stays out where a router cannot verify."""
    strategy = r.rollout.strategy
    stable_hash = r.stable.hash if r.stable is not None else ""
    canary: Json = {"weight": weight, "podTemplateHash": canary_hash, "serviceName": strategy.get("canaryService")}
    stable: Json = {
        "weight": 100 - weight,
        "podTemplateHash": stable_hash,
        "serviceName": strategy.get("stableService"),
    }
    r.status["canary"]["weights"] = {
        arm: {key: part for key, part in said.items() if part not in ("", None)}
        for arm, said in (("canary", canary), ("stable", stable))
    }
