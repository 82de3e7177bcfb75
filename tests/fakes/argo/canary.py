"""The canary strategy: one reconciliation, and the status that it ends in.

Upstream: `rollout/canary.go` (`rolloutCanary`, `syncRolloutStatusCanary`, `completedCurrentCanaryStep`) and
`rollout/sync.go` (`resetRolloutStatus`, `isRollbackWithinWindow`, `shouldFullPromote`, `promoteStable`).
"""

from __future__ import annotations

from datetime import timedelta

from fakes.argo import analysis, replica_sets
from fakes.argo.counts import at_desired_counts, canary_counts, needed
from fakes.argo.pauses import CANARY_STEP, seconds_of
from fakes.argo.reconciliation import Reconciliation
from fakes.argo.restart import restart_pods
from fakes.argo.role_metadata import sync_metadata
from fakes.argo.rollback import reset, within_window
from fakes.argo.services import reconcile_canary_services
from fakes.argo.status import base_status, promote, with_conditions
from fakes.argo.traffic import reconcile_traffic

from rollouts.kube.model import Json

INSTANT_STEPS = ("setHeaderRoute", "setMirrorRoute")
"""Done as soon as they are current, whether or not the router did anything."""


def reconcile_canary(r: Reconciliation) -> None:
    """The order matters: services and traffic come before pods, and the status comes last."""
    replica_sets.sync_revision(r)
    runs = analysis.Runs(r)
    if r.template_or_steps_changed:
        _write_status(r, runs)
        return
    replica_sets.create_new(r)
    restart_pods(r)
    sync_metadata(r)
    replica_sets.forget_old(r)
    reconcile_canary_services(r)
    reconcile_traffic(r)
    runs.reconcile()
    if not r.pauses.adds and not scale_canary(r):
        _pause_at_step(r)
    _write_status(r, runs)


def scale_canary(r: Reconciliation) -> bool:
    """One replica set at a time: stable, then new, then old ones; whether one changed."""
    if r.halted:
        return False
    replica_sets.remove_deadlines(r)
    if r.has_stable and r.stable is not None:
        # By the weights before this reconciliation: a stable that follows its weight goes one step behind it.
        wished = canary_counts(r.rollout, r.new, r.stable, r.others, r.rollout.weights)[1]
        if replica_sets.scale(r, r.stable, wished):
            return True
    r.new = r.new or r.by_hash(r.rollout.current_hash)
    wished = canary_counts(r.rollout, r.new, r.stable, r.others, r.weights)[0]
    return replica_sets.scale_new(r, wished) or replica_sets.scale_down_others_of_canary(r)


def _pause_at_step(r: Reconciliation) -> None:
    """Begin the pause of a `pause` step. One that somebody took away (`controllerPause` without conditions) is over."""
    step = r.rollout.step
    if r.rollout.paused or r.rollout.promoting_fully or step is None or "pause" not in step:
        return
    begun = r.pauses.condition(CANARY_STEP) is not None
    if not begun and r.rollout.status.get("controllerPause"):
        return
    if not begun:
        r.pauses.add(CANARY_STEP)
    if duration := (step["pause"] or {}).get("duration"):
        seconds = seconds_of(duration)
        r.world.wake(r.pauses.ends(CANARY_STEP, seconds) or r.now + timedelta(seconds=seconds))


def _write_status(r: Reconciliation, runs: analysis.Runs) -> None:
    status = base_status(r)
    status["availableReplicas"] = sum(rs.available for rs in r.all)
    status["currentStepHash"] = r.rollout.step_hash
    if r.template_or_steps_changed:
        reset(r, status)
        _skip_steps_of_known_version(r, status)
    elif (reason := _promotes(r)) is not None:
        promote(r, status, reason)
    elif r.pauses.aborted:
        promoted = status.get("stableRS", "") == status["currentPodHash"]
        _set_index(r, status, len(r.rollout.steps) if promoted else 0)
    else:
        _advance(r, status, runs)
    r.persist(with_conditions(r, status))


def _skip_steps_of_known_version(r: Reconciliation, status: Json) -> None:
    """Back to the stable, or within the rollback window to one that still has pods: all steps are skipped."""
    if r.new is None or not r.rollout.steps:
        return
    if r.new.hash == r.rollout.stable_hash:
        r.event("SkipSteps", "Rollback to stable ReplicaSets")
    elif within_window(r) and r.new.replicas > 0:
        r.event("SkipSteps", "Rollback to active ReplicaSets within RollbackWindow")
    else:
        return
    status["currentStepIndex"] = len(r.rollout.steps)


def _promotes(r: Reconciliation) -> str | None:
    """Why the new one becomes stable now (`shouldFullPromote`): its pods are all there, and nothing is left to do."""
    if r.stable is None:
        return "Initial deploy"
    full = r.rollout.promoting_fully or within_window(r)
    if full:
        r.pauses.clear()
        r.pauses.unabort()
    if r.pauses.aborted or r.new is None or not _all_available(r):
        return None
    if r.rollout.promoting_fully:
        return "Full promotion requested"
    if full:
        return "Rollback within window"
    count = len(r.rollout.steps)
    return f"Completed all {count} canary steps" if r.rollout.step_index in (None, count) else None


def _all_available(r: Reconciliation) -> bool:
    whole = r.rollout.replicas
    return r.new is not None and needed(r.rollout, whole) <= r.new.available <= whole


def _advance(r: Reconciliation, status: Json, runs: analysis.Runs) -> None:
    index = r.rollout.step_index
    if index is None:
        return
    if r.rollout.promoting_fully or within_window(r):
        index = len(r.rollout.steps)
    elif (step := r.rollout.step) is not None and _completed(r, step, runs):
        index += 1
        status["canary"].pop(analysis.STEP[1], None)
        text = f"Rollout step {index}/{len(r.rollout.steps)} completed ({step_text(step)})"
        r.event("RolloutStepCompleted", text)
        r.pauses.remove(CANARY_STEP)
    _set_index(r, status, index)


def _completed(r: Reconciliation, step: Json, runs: analysis.Runs) -> bool:
    """`completedCurrentCanaryStep`; never while `spec.paused`."""
    if r.rollout.paused:
        return False
    if "pause" in step:
        return r.pauses.step_completed(step["pause"] or {})
    if "setCanaryScale" in step or "setWeight" in step:
        return at_desired_counts(r.rollout, r.new, r.stable, r.others, r.weights)
    if "analysis" in step:
        return runs.succeeded(analysis.STEP)
    return any(name in step for name in INSTANT_STEPS)


def _set_index(r: Reconciliation, status: Json, index: int) -> None:
    if r.rollout.steps:
        status["currentStepIndex"] = index


def step_text(step: Json) -> str:
    """`CanaryStepString`."""
    if "setWeight" in step:
        return f"setWeight: {step['setWeight']}"
    if "pause" in step:
        duration = (step["pause"] or {}).get("duration")
        return f"pause: {duration}" if duration else "pause"
    if "setCanaryScale" in step:
        inside = ", ".join(f"{key}: {str(part).lower()}" for key, part in step["setCanaryScale"].items())
        return f"setCanaryScale{{{inside}}}"
    return next((name for name in ("experiment", "analysis", *INSTANT_STEPS) if name in step), "invalid")
