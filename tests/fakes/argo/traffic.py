"""The share of users that the canary gets, and the status that says so.

Upstream: `rollout/trafficrouting.go` (`reconcileTrafficRouting`), called in `rollout/canary.go` before replica sets
are scaled and before the status is written: an error here freezes the status, with `observedGeneration` behind.
"""

from __future__ import annotations

from fakes.argo.counts import at_desired_counts, current_set_weight, previous_set_weight
from fakes.argo.reconciliation import ReconcileError, Reconciliation
from fakes.argo.routers import Router, routers_of
from fakes.argo.services import ensure_targets, going_back_by_weight

from rollouts.kube.model import Json


def reconcile_traffic(r: Reconciliation) -> None:
    """Set the weight that the state calls for.

    Raises:
        ReconcileError: the plugin cannot be loaded, or the route is not what it should be.
    """
    if r.rollout.traffic is None:
        r.status["canary"].pop("weights", None)
        return
    for router in routers_of(r):
        weight, canary_hash = _desired(r, router)
        _managed_routes(r, router)
        try:
            router.set_weight(weight)
        except ReconcileError as error:
            r.event("TrafficRoutingError", str(error), warning=True)
            raise
        _write_weights(r, weight, canary_hash)


def _desired(r: Reconciliation, router: Router) -> tuple[int, str]:
    """The canary's weight, and the hash that gets it."""
    new_hash = r.new.hash if r.new is not None else ""
    if (last := going_back_by_weight(r)) is not None:
        return _weight_back(r), last
    if r.rollout.fully_promoted:
        router.remove_managed_routes()
        return 0, new_hash
    if r.pauses.aborted:
        weight = _weight_back(r)
        if not r.rollout.dynamic or weight == 0:
            ensure_targets(r, r.rollout.strategy.get("canaryService"), r.stable, when_available=False)
        router.remove_managed_routes()
        return weight, new_hash
    if r.new is None or r.new.available == 0:
        router.remove_managed_routes()  # argo-rollouts#4486: a route by header is gone until its step comes again
        return 0, new_hash
    if r.rollout.promoting_fully:
        router.remove_managed_routes()
        return _weight_of_full_promotion(r), new_hash
    return _weight_of_step(r), new_hash


def _weight_back(r: Reconciliation) -> int:
    """0 at once; with `dynamicStableScale` only as fast as the stable grows, and never up again."""
    if not r.rollout.dynamic or r.stable is None:
        return 0
    weight = 100 - 100 * r.stable.available // max(r.rollout.replicas, 1)
    return min(weight, r.rollout.weights["canary"]["weight"]) if r.rollout.weights else weight


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
    if not at_desired_counts(r.rollout, r.new, r.stable, r.others, None):
        return previous_set_weight(r.rollout, index)
    return current_set_weight(r.rollout) if r.rollout.step is not None else 100


def _managed_routes(r: Reconciliation, router: Router) -> None:
    """Routes by header and mirrors hold while their own step is current, and not for the first revision."""
    step = r.rollout.step
    if step is None or r.rollout.revision <= 1:
        return
    if "setHeaderRoute" in step:
        router.set_header_route(step["setHeaderRoute"])
    if "setMirrorRoute" in step:
        router.set_mirror_route(step["setMirrorRoute"])


def _write_weights(r: Reconciliation, weight: int, canary_hash: str) -> None:
    """`calculateWeightStatus`; `verified` stays out where a router cannot verify."""
    strategy, old = r.rollout.strategy, r.rollout.weights
    stable_hash = r.stable.hash if r.stable is not None else ""
    canary: Json = {"weight": weight, "podTemplateHash": canary_hash, "serviceName": strategy.get("canaryService")}
    stable: Json = {
        "weight": 100 - weight,
        "podTemplateHash": stable_hash,
        "serviceName": strategy.get("stableService"),
    }
    new = {
        arm: {key: part for key, part in said.items() if part not in ("", None)}
        for arm, said in (("canary", canary), ("stable", stable))
    }
    before = old["canary"]["weight"] if old else None
    if old is None or any(old.get(arm) != new[arm] for arm in new):
        change = f"to {weight}" if before is None else f"from {before} to {weight}" if before != weight else ""
        r.event("TrafficWeightUpdated", f"Traffic weight updated {change}")
    r.status["canary"]["weights"] = new
