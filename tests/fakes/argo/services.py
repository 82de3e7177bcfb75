"""Which pods the Services select.

Upstream: `rollout/service.go`.
"""

from __future__ import annotations

from fakes.argo.objects import HASH_LABEL, MANAGED_BY, ReplicaSet, annotate
from fakes.argo.reconciliation import Reconciliation
from fakes.argo.replica_sets import selector_of

from rollouts.kube.model import Json


def switch(r: Reconciliation, service: Json, pod_hash: str) -> None:
    """Make it select this hash, and mark it as the Rollout's."""
    old = selector_of(service)
    if old == pod_hash and MANAGED_BY in (service["metadata"].get("annotations") or {}):
        return
    annotate(service, **{MANAGED_BY: r.rollout.name})
    service["spec"]["selector"] = (service["spec"].get("selector") or {}) | {HASH_LABEL: pod_hash}
    r.world.update(service)
    r.event(
        "SwitchService", f"Switched selector for service '{service['metadata']['name']}' from '{old}' to '{pod_hash}'"
    )


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
    """Stable to the stable, canary to the new one; the basic canary's to the stable when aborted.

    With a router an abort points the canary's Service in `trafficrouting.go`, once the weight is 0. Upstream points it
    to the new one here first and so back and forth in each reconciliation; that is left out.
    """
    canary = r.rollout.strategy.get("canaryService")
    ensure_targets(r, r.rollout.strategy.get("stableService"), r.stable)
    if r.pauses.aborted and r.rollout.traffic is None:
        ensure_targets(r, canary, r.stable)
    elif not r.pauses.aborted and going_back_by_weight(r) is None:
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
