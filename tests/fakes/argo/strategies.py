"""The strategy canary: one reconciliation, and the status that it ends in.

Upstream: `rollout/canary.go` (`rolloutCanary`, `syncRolloutStatusCanary`, `completedCurrentCanaryStep`),
`rollout/sync.go` (`shouldFullPromote`, `promoteStable`).
"""

from __future__ import annotations

from fakes.argo import replica_sets
from fakes.argo.conditions import CANARY_STEP
from fakes.argo.reconciliation import (
    Reconciliation,
    base_status,
    promote,
    reset,
    sync_metadata,
    with_conditions,
    within_window,
)
from fakes.argo.replica_sets import at_desired_counts
from fakes.argo.traffic import reconcile_canary_services, reconcile_traffic

from tidegate.core.model import Json


def reconcile_canary(r: Reconciliation) -> None:
    """The order matters: services and traffic come before pods, and the status comes last."""
    replica_sets.sync_revision(r)
    if r.template_or_steps_changed:
        _write_canary_status(r)
        return
    replica_sets.create_new(r)
    sync_metadata(r)
    reconcile_canary_services(r)
    reconcile_traffic(r)
    if not r.pauses.adds and not scale_canary(r):
        _pause_at_step(r)
    _write_canary_status(r)


def scale_canary(r: Reconciliation) -> bool:
    """One replica set at a time: stable, then new, then old ones; whether one changed."""
    if r.halted:
        return False
    replica_sets.remove_deadlines(r)
    if r.has_stable and r.stable is not None and replica_sets.scale(r, r.stable, r.rollout.replicas):
        return True
    count = replica_sets.canary_count(r.rollout)
    return replica_sets.scale_new(r, count) or replica_sets.scale_down_others_of_canary(r)


def _pause_at_step(r: Reconciliation) -> None:
    """Begin the pause of a `pause` step. One that somebody took away (`controllerPause` without conditions) is over."""
    step = r.rollout.step
    if r.rollout.paused or r.rollout.promoting_fully or step is None or "pause" not in step:
        return
    if r.pauses.condition(CANARY_STEP) is None and not r.rollout.status.get("controllerPause"):
        r.pauses.add(CANARY_STEP)


def _write_canary_status(r: Reconciliation) -> None:
    status = base_status(r)
    status["availableReplicas"] = sum(rs.available for rs in r.all)
    status["currentStepHash"] = r.rollout.step_hash
    if r.template_or_steps_changed:
        reset(r, status)
        _skip_steps_of_known_version(r, status)
    elif _promotes_canary(r):
        promote(r, status)
    elif r.pauses.aborted:
        promoted = status.get("stableRS", "") == status["currentPodHash"]
        _set_index(r, status, len(r.rollout.steps) if promoted else 0)
    else:
        _advance(r, status)
    r.persist(with_conditions(r, status))


def _skip_steps_of_known_version(r: Reconciliation, status: Json) -> None:
    """Back to the stable, or within the rollback window to one that still has pods: all steps are skipped."""
    if r.new is None or not r.rollout.steps:
        return
    if r.new.hash == r.rollout.stable_hash or (within_window(r) and r.new.replicas > 0):
        status["currentStepIndex"] = len(r.rollout.steps)


def _promotes_canary(r: Reconciliation) -> bool:
    """Whether the new one becomes stable now (`shouldFullPromote`): its pods are all there, and nothing is left."""
    if r.stable is None:
        return True
    full = r.rollout.promoting_fully or within_window(r)
    if full:
        r.pauses.clear()
        r.pauses.unabort()
    if r.pauses.aborted or r.new is None or r.new.available != r.rollout.replicas:
        return False
    return full or r.rollout.step_index in (None, len(r.rollout.steps))


def _advance(r: Reconciliation, status: Json) -> None:
    index = r.rollout.step_index
    if index is None:
        return
    if r.rollout.promoting_fully or within_window(r):
        index = len(r.rollout.steps)
    elif (step := r.rollout.step) is not None and _completed(r, step):
        index += 1
        r.pauses.remove(CANARY_STEP)
    _set_index(r, status, index)


def _completed(r: Reconciliation, step: Json) -> bool:
    """`completedCurrentCanaryStep`; never while `spec.paused`."""
    if r.rollout.paused:
        return False
    if "pause" in step:
        return r.pauses.step_completed
    return at_desired_counts(r.rollout, r.new, r.stable)


def _set_index(r: Reconciliation, status: Json, index: int) -> None:
    if r.rollout.steps:
        status["currentStepIndex"] = index
