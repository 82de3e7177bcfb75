"""The share of users that the canary gets: Services, the Gateway API plugin and Istio, and the status that says so.

Upstream: `rollout/trafficrouting.go` (`reconcileTrafficRouting`), called in `rollout/canary.go` before replica sets
are scaled and before the status is written: an error here freezes the status, with `observedGeneration` behind.
`rollout/service.go`; `rollout/trafficrouting/plugin/plugin.go`, rollouts-plugin-trafficrouter-gatewayapi
`pkg/plugin/{plugin,httproute}.go`, `rollout/trafficrouting/istio/istio.go`.
"""

from __future__ import annotations

from fakes.argo.objects import HASH_LABEL, MANAGED_BY, ReplicaSet, annotate
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.replica_sets import at_desired_counts, current_set_weight, previous_set_weight, selector_of

from rollouts.kube.resources import HTTP_ROUTES, VIRTUAL_SERVICES
from tidegate.core.model import Json

GATEWAY_PLUGIN = "argoproj-labs/gatewayAPI"
_CANNOT_START = "unable to start plugin system: unable to get plugin client ({}) for ping: exec: Stdout already set"
"""As in argo-rollouts#3918."""


def set_weight(r: Reconciliation, weight: int) -> None:
    """By all routers that the strategy names.

    Raises:
        ReconcileError: a plugin is unknown or does not start, or the route is not what it should be.
    """
    traffic = r.rollout.traffic
    if "istio" in traffic:
        _set_by_istio(r, traffic["istio"]["virtualService"], weight)
    for name, config in traffic.get("plugins", {}).items():
        if name != GATEWAY_PLUGIN:
            raise ReconcileError(f"plugin {name} not configured in configmap")
        if r.world.plugin_broken:
            raise ReconcileError(f"failed to get traffic router plugin {name}: {_CANNOT_START.format(name)}")
        _set_by_gateway(r, config, weight)


def _set_by_gateway(r: Reconciliation, config: Json, weight: int) -> None:
    """Every rule that names canary or stable; each must be named somewhere. Filters stay as they are."""
    name = config["httpRoute"]
    route = r.world.find(HTTP_ROUTES, name, config.get("namespace", r.rollout.namespace))
    if route is None:
        raise ReconcileError(f'httproutes.gateway.networking.k8s.io "{name}" not found')
    for arm, share in (("canary", weight), ("stable", 100 - weight)):
        service, rules = _service_of(r, arm), route["spec"].get("rules", ())
        references = [one for rule in rules for one in rule.get("backendRefs", ()) if one.get("name") == service]
        if not references:
            raise ReconcileError("backendRef was not found in httpRoute")
        for reference in references:
            reference["weight"] = share
    r.world.update(route)


def _set_by_istio(r: Reconciliation, config: Json, weight: int) -> None:
    """The destinations of the routes that the strategy names."""
    service = r.world.find(VIRTUAL_SERVICES, config["name"], r.rollout.namespace)
    if service is None:
        raise ReconcileError(f'virtualservices.networking.istio.io "{config["name"]}" not found')
    shares = {_service_of(r, "canary"): weight, _service_of(r, "stable"): 100 - weight}
    for route in [one for one in service["spec"].get("http", []) if one.get("name") in config["routes"]]:
        # A host may be written with its namespace: `name.namespace.svc.cluster.local`.
        hosts = {str(one["destination"].get("host", "")).split(".")[0]: one for one in route.get("route", ())}
        if not shares.keys() <= hosts.keys():
            raise ReconcileError("Stable and canary services not found among the route's destinations")
        for host, share in shares.items():
            hosts[host]["weight"] = share
    r.world.update(service)


def _service_of(r: Reconciliation, arm: str) -> str:
    return str(r.rollout.strategy.get(f"{arm}Service"))


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
    if not r.pauses.aborted:
        ensure_targets(r, canary, r.new)


def reconcile_traffic(r: Reconciliation) -> None:
    """Set the weight that the state calls for.

    Raises:
        ReconcileError: the plugin cannot be loaded, or the route is not what it should be.
    """
    weight, canary_hash = _desired(r)
    set_weight(r, weight)
    _write_weights(r, weight, canary_hash)


def _desired(r: Reconciliation) -> tuple[int, str]:
    """The canary's weight, and the hash that gets it."""
    new_hash = r.new.hash if r.new is not None else ""
    if r.rollout.fully_promoted:
        return 0, new_hash
    if r.pauses.aborted:
        ensure_targets(r, r.rollout.strategy.get("canaryService"), r.stable, when_available=False)
        return 0, new_hash
    if r.new is None or r.new.available == 0:
        return 0, new_hash
    if r.rollout.promoting_fully:
        # What it was until all pods are there.
        return int(r.rollout.weights["canary"]["weight"]) if r.rollout.weights else 0, new_hash
    return _weight_of_step(r), new_hash


def _weight_of_step(r: Reconciliation) -> int:
    """The last `setWeight`; the one before while pods are missing; 100 after the last step."""
    index = r.rollout.step_index
    if index is None:
        return 0
    if not at_desired_counts(r.rollout, r.new, r.stable):
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
