"""What a controller owes a rollout: wishes that it has not reacted to yet.

A healthy controller reacts within seconds. One whose traffic plugin does not start reconciles for ever and says so in
no condition (argo-rollouts#3918), and a phase of its own rules, Progressing, is all that kubectl shows.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rollouts.argo.model import Rollout, as_time
from rollouts.argo.phase import (
    SPEC_UNSEEN,
    UNPAUSING,
    WORKLOAD_UNSEEN,
    pause_is_stale,
    says_aborted,
    waiting_for_controller,
)
from rollouts.kube.model import Json

NEVER_SEEN = "waiting for a controller to see it"
ABORTING = "waiting for rollout to abort"
UNSCALED = "waiting for rollout to scale its new ReplicaSet"

NEW_REPLICA_SET = "NewReplicaSetCreated"
"""The reason of the condition Progressing from the moment a ReplicaSet is made until its first pod is."""

INSTANCE_ID = "argo-rollouts.argoproj.io/controller-instance-id"
"""The label that gives a Rollout to the one controller that was started with this id."""


class Debt(NamedTuple):
    """One wish that waits."""

    text: str
    """In upstream's words where it has some."""
    since: datetime | None
    """Since when, as far as the object tells."""


def debt_of(rollout: Json, workload: Json | None = None) -> Debt | None:
    """What the controller has not reacted to; None when it has seen everything."""
    seen, waiting = Rollout(rollout), waiting_for_controller(rollout, workload=workload)
    if waiting:
        changed = {SPEC_UNSEEN: rollout, WORKLOAD_UNSEEN: workload}.get(waiting)
        return Debt(waiting, _spec_changed_at(changed) if changed else None)
    # Upstream takes a missing observedGeneration, like every text that is no number, for one that was seen.
    if not seen.status.get("observedGeneration"):
        return Debt(NEVER_SEEN, as_time(seen.metadata.get("creationTimestamp")))
    if pause_is_stale(seen):
        return Debt(UNPAUSING, None)
    # `status.abort` is a wish until the controller has written when it aborted (CalculatePauseStatus).
    if seen.aborted and not (seen.status.get("abortedAt") or says_aborted(seen)):
        return Debt(ABORTING, _written_at(rollout, "f:status", "f:abort"))
    return _unscaled(seen)


def likely_cause(seen: Rollout) -> str:
    """Why a controller may not react to this rollout."""
    instance = (seen.metadata.get("labels") or {}).get(INSTANCE_ID)
    if instance:
        return f"only a controller started with --instance-id {instance} looks at it: see whether one runs"
    if not seen.status.get("observedGeneration"):
        return "no Argo Rollouts controller ever looked at it: none runs, or none for this namespace"
    routing = (seen.canary or {}).get("trafficRouting") or {}
    plugins = sorted(routing.get("plugins") or {})
    tells = "its log and its metric rollout_reconcile_error tell"
    if plugins:
        return (
            f"the controller does not run, or the traffic plugin {plugins[0]} does not load or fails and it ends there "
            f"each time; {tells}"
        )
    routers = sorted(key for key, value in routing.items() if isinstance(value, dict))
    if routers:
        return (
            f"the controller does not run, or traffic routing by {routers[0]} fails (an object that is not there, or "
            f"is not allowed) and it ends there each time; {tells}"
        )
    return "the Argo Rollouts controller does not run or fails on this rollout: its log tells"


def _unscaled(seen: Rollout) -> Debt | None:
    """A new version whose ReplicaSet was made and never scaled.

    `rolloutCanary` writes the status of a new template first, so that its generation is observed. What comes next, the
    ReplicaSet's pods, comes after traffic routing: where that fails, the condition stays what it was for ever.
    """
    routed = (seen.canary or {}).get("trafficRouting") is not None
    idle = not seen.status.get("updatedReplicas") and not seen.pause_conditions and not seen.paused_by_spec
    refused = any(condition.get("type") == "ReplicaFailure" for condition in seen.conditions)
    if not (routed and idle and seen.in_progress and _wants_pods(seen)) or refused or seen.aborted:
        return None
    made = [each for each in seen.conditions if each.get("reason") == NEW_REPLICA_SET]
    return Debt(UNSCALED, as_time(made[0].get("lastUpdateTime"))) if made else None


def _wants_pods(seen: Rollout) -> bool:
    step = seen.step
    if step is None:
        return True
    scale = step.get("setCanaryScale") or {}
    return bool(
        step.get("setWeight") or scale.get("replicas") or scale.get("weight") or scale.get("matchTrafficWeight")
    )


def _spec_changed_at(thing: Json) -> datetime | None:
    return _written_at(thing, "f:spec")


def _written_at(thing: Json, *path: str) -> datetime | None:
    """When somebody last wrote that field, or one below it: of the status through its own door, else not."""
    times = [
        as_time(entry.get("time"))
        for entry in thing["metadata"].get("managedFields") or []
        if (entry.get("subresource") == "status") == (path[0] == "f:status") and owns(entry, path)
    ]
    return max((time for time in times if time), default=None)


def owns(entry: Json, path: tuple[str, ...]) -> bool:
    """Whether an entry of `metadata.managedFields` has that field, or one below it."""
    fields = entry.get("fieldsV1") or {}
    for part in path:
        if part not in fields:
            return False
        fields = fields[part]
    return True
