"""The strategies canary and blue-green: one reconciliation of each, and the status that it ends in.

Upstream: `rollout/canary.go` (`rolloutCanary`, `syncRolloutStatusCanary`, `completedCurrentCanaryStep`),
`rollout/bluegreen.go`, `rollout/service.go` (`reconcilePreviewService`, `reconcileActiveService`), `rollout/pause.go`
(`CompletedBlueGreenPause`), `rollout/sync.go` (`shouldFullPromote`, `promoteStable`).
"""

from __future__ import annotations

from fakes.argo import analysis, replica_sets, traffic
from fakes.argo.conditions import BLUE_GREEN, CANARY_STEP
from fakes.argo.objects import ReplicaSet
from fakes.argo.reconciliation import (
    Reconciliation,
    base_status,
    promote,
    reset,
    sync_metadata,
    with_conditions,
    within_window,
)
from fakes.argo.replica_sets import at_desired_counts, preview_count, routed_counts, selector_of
from fakes.argo.traffic import reconcile_canary_services, reconcile_traffic

from tidegate.core.model import Json

INSTANT_STEPS = ("setHeaderRoute", "setMirrorRoute")
"""Done as soon as they are current, whether or not the router did anything."""


def reconcile_canary(r: Reconciliation) -> None:
    """The order matters: services and traffic come before pods, and the status comes last."""
    replica_sets.sync_revision(r)
    if r.template_or_steps_changed:
        _write_canary_status(r)
        return
    replica_sets.create_new(r)
    sync_metadata(r)
    replica_sets.forget_old(r)
    reconcile_canary_services(r)
    reconcile_traffic(r)
    analysis.follow_background(r)
    if not r.pauses.adds and not scale_canary(r):
        _pause_at_step(r)
    _write_canary_status(r)


def scale_canary(r: Reconciliation) -> bool:
    """One replica set at a time: stable, then new, then old ones; whether one changed."""
    if r.halted:
        return False
    replica_sets.remove_deadlines(r)
    if r.has_stable and r.stable is not None:
        # By the weights before this reconciliation: a stable that follows its weight goes one step behind it.
        desired = routed_counts(r.rollout, r.new, r.stable, r.rollout.weights)[1]
        if replica_sets.scale(r, r.stable, desired):
            return True
    r.new = r.new or r.by_hash(r.rollout.current_hash)
    desired = routed_counts(r.rollout, r.new, r.stable, r.weights)[0]
    return replica_sets.scale_new(r, desired) or replica_sets.scale_down_others_of_canary(r)


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
    if "setCanaryScale" in step or "setWeight" in step:
        return at_desired_counts(r.rollout, r.new, r.stable, r.weights)
    return any(name in step for name in INSTANT_STEPS)


def _set_index(r: Reconciliation, status: Json, index: int) -> None:
    if r.rollout.steps:
        status["currentStepIndex"] = index


def reconcile_blue_green(r: Reconciliation) -> None:
    """The preview Service follows the new pods at once, the active one when they are all there and nothing waits."""
    replica_sets.sync_revision(r)
    replica_sets.create_new(r)
    assert r.new is not None
    preview = _service(r, "previewService")
    if preview is not None and not r.halted:
        traffic.switch(r, preview, r.new.hash)
    if r.template_changed:
        _write_blue_green_status(r)
        return
    active = _service(r, "activeService") or {}
    scale_blue_green(r, selector_of(active))
    replica_sets.forget_old(r)
    _reconcile_pause(r, r.new, selector_of(active))
    _switch_active(r, r.new, active)
    sync_metadata(r)
    _write_blue_green_status(r)


def scale_blue_green(r: Reconciliation, active_hash: str) -> None:
    """The active version whole, the new one as the preview allows, others until their deadline."""
    replica_sets.remove_deadlines(r)
    active = r.by_hash(active_hash)
    if active is not None:
        replica_sets.scale(r, active, r.rollout.replicas)
    r.new = r.new or r.by_hash(r.rollout.current_hash)  # as `reconcileCanaryReplicaSets`, or it waits for ever
    if r.new is not None:
        replica_sets.scale_new(r, preview_count(r.rollout, r.by_hash(_colours(r).get("activeSelector", "")), r.new))
    replica_sets.scale_down_others_of_blue_green(r)


def _colours(r: Reconciliation) -> Json:
    colours: Json = r.rollout.status.get("blueGreen", {})
    return colours


def _service(r: Reconciliation, role: str) -> Json | None:
    name = r.rollout.strategy.get(role)
    return r.service(name) if name else None


def _fast_tracked(r: Reconciliation, new: ReplicaSet, active_hash: str) -> bool:
    """No pause: the version is still warm, a full promotion was asked for, or nothing or this one is active."""
    return r.warm or r.rollout.promoting_fully or active_hash in ("", new.hash)


def _ready(r: Reconciliation, new: ReplicaSet) -> bool:
    """`ReadyForPause`: the pods that the preview should have are available."""
    preview = r.rollout.strategy.get("previewReplicaCount")
    if preview is not None and not _colours(r).get("scaleUpPreviewCheckPoint"):
        return new.available == int(preview) or new.available == r.rollout.replicas
    return _saturated(r, new)


def _saturated(r: Reconciliation, new: ReplicaSet) -> bool:
    return new.replicas == new.available == r.rollout.replicas


def _reconcile_pause(r: Reconciliation, new: ReplicaSet, active_hash: str) -> None:
    if r.rollout.aborted or r.halted or not _ready(r, new):
        return
    if _fast_tracked(r, new, active_hash) or _colours(r).get("scaleUpPreviewCheckPoint"):
        r.pauses.remove(BLUE_GREEN)
    elif r.pauses.condition(BLUE_GREEN) is None and not r.rollout.status.get("controllerPause"):
        r.pauses.add(BLUE_GREEN)


def _pause_completed(r: Reconciliation) -> bool:
    """`CompletedBlueGreenPause`: somebody resumed it."""
    resumed = bool(r.rollout.status.get("controllerPause")) and r.pauses.condition(BLUE_GREEN) is None
    return not r.pauses.adds and (resumed or bool(_colours(r).get("scaleUpPreviewCheckPoint")))


def _switch_active(r: Reconciliation, new: ReplicaSet, active: Json) -> None:
    """To the new one when it may serve; back to the stable when aborted."""
    if r.halted:
        return
    desired = selector_of(active)
    if _ready(r, new) and _saturated(r, new) and (_fast_tracked(r, new, desired) or _pause_completed(r)):
        desired = new.hash
    if r.rollout.aborted:
        desired = r.rollout.stable_hash
    if desired:
        traffic.switch(r, active, desired)


def _write_blue_green_status(r: Reconciliation) -> None:
    status = base_status(r)
    if r.template_changed:
        reset(r, status)
    if r.rollout.promoting_fully or within_window(r):
        r.pauses.clear()
        r.pauses.unabort()
    colours = status["blueGreen"]
    for colour in ("preview", "active"):
        colours[f"{colour}Selector"] = selector_of(_service(r, f"{colour}Service"))
    if _promotes_blue_green(r, colours["activeSelector"], status["currentPodHash"]):
        promote(r, status)
    else:
        colours["scaleUpPreviewCheckPoint"] = _check_point(r)
    active = r.by_hash(colours["activeSelector"])
    if active is not None:
        status |= {"availableReplicas": active.available, "readyReplicas": active.ready}
    else:
        status["availableReplicas"] = sum(rs.available for rs in r.all)
    r.persist(with_conditions(r, status))


def _promotes_blue_green(r: Reconciliation, active_hash: str, current: str) -> bool:
    """Whether the new one becomes stable now (`shouldFullPromote`): it is active, and nothing more is measured."""
    if r.stable is None or not active_hash:
        return True
    if active_hash != current:
        return False
    return r.rollout.promoting_fully or within_window(r) or not r.pauses.aborted


def _check_point(r: Reconciliation) -> bool:
    """`calculateScaleUpPreviewCheckPoint`: passed once, until the template changes or the version is stable."""
    preview = r.rollout.strategy.get("previewReplicaCount")
    if preview is None or r.new is None:
        return False
    if _colours(r).get("scaleUpPreviewCheckPoint"):
        return True
    return _pause_completed(r) and r.new.available == int(preview)
