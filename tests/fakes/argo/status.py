"""The parts of a Rollout's status that both strategies share.

Upstream: `rollout/sync.go` (`calculateBaseStatus`, `calculateRolloutConditions`, `promoteStable`).
"""

from __future__ import annotations

from fakes.argo import conditions
from fakes.argo.conditions import Condition, set_condition
from fakes.argo.reconciliation import Reconciliation

from rollouts.kube.model import Json


def base_status(r: Reconciliation) -> Json:
    """Counts and hashes; what is not in it is gone from the status."""
    old, status = r.rollout.status, r.status
    status["stableRS"] = r.rollout.stable_hash
    status["currentPodHash"] = r.new.hash if r.new is not None else r.rollout.pod_hash
    status["replicas"] = status["HPAReplicas"] = sum(rs.actual for rs in r.all)
    status["updatedReplicas"] = r.new.actual if r.new is not None else 0
    status["readyReplicas"] = sum(rs.ready for rs in r.all)
    status["selector"] = _selector_text(r.rollout.selector)
    status["conditions"] = [dict(one) for one in old.get("conditions", ()) if one["type"] != conditions.INVALID_SPEC]
    status["promoteFull"] = r.rollout.promoting_fully and status["currentPodHash"] != status["stableRS"]
    if "collisionCount" in old:
        status["collisionCount"] = old["collisionCount"]
    return status


def promote(r: Reconciliation, status: Json, reason: str) -> None:
    """The current version is the stable one from now on."""
    r.pauses.clear()
    r.pauses.unabort()
    status.pop("promoteFull", None)
    status.get("blueGreen", {}).pop("scaleUpPreviewCheckPoint", None)
    if r.rollout.steps:
        status["currentStepIndex"] = len(r.rollout.steps)
    if status["stableRS"] != status["currentPodHash"]:
        status["stableRS"] = status["currentPodHash"]
        text = f"Rollout completed update to revision {r.rollout.revision} ({status['currentPodHash']}): {reason}"
        r.event("RolloutCompleted", text)


def with_conditions(r: Reconciliation, status: Json) -> Json:
    """Healthy, Progressing, Available, ReplicaFailure and Completed as they are with this status."""
    paused = bool(r.rollout.status.get("pauseConditions")) or r.rollout.paused
    became_unhealthy = _set_healthy(r, status, paused=paused)
    if r.pauses.aborted:
        _set_aborted(r, status)
    else:
        _set_progressing(r, status, paused=paused, became_unhealthy=became_unhealthy)
    _set_available(r, status)
    _set_replica_failure(r, status)
    done = conditions.completed(status)
    changed = set_condition(
        status, r.now, Condition(conditions.COMPLETED, str(done), "RolloutCompleted", "RolloutCompleted")
    )
    if changed and not done:
        text = (
            f"Rollout not completed, started update to revision {r.rollout.revision + 1} ({status['currentPodHash']})"
        )
        r.event("RolloutNotCompleted", text)
    return status


def _set_healthy(r: Reconciliation, status: Json, *, paused: bool) -> bool:
    """Whether it was healthy and is not any more."""
    if not paused and conditions.healthy(r.rollout, status):
        set_condition(status, r.now, Condition(conditions.HEALTHY, "True", "RolloutHealthy", "Rollout is healthy"))
        return False
    if conditions.condition_of(status, conditions.HEALTHY) is None:
        return False
    return set_condition(
        status, r.now, Condition(conditions.HEALTHY, "False", "RolloutHealthy", "Rollout is not healthy")
    )


def _set_aborted(r: Reconciliation, status: Json) -> None:
    text = f"Rollout aborted update to revision {r.rollout.revision}"
    text += f": {r.pauses.message}" if r.pauses.message else ""
    if set_condition(status, r.now, Condition(conditions.PROGRESSING, "False", conditions.ABORTED, text)):
        r.event(conditions.ABORTED, text, warning=True)


def _set_progressing(r: Reconciliation, status: Json, *, paused: bool, became_unhealthy: bool) -> None:
    """Done, moving, or too late; a healthy one that is paused stays `RolloutPaused`."""
    name = r.new.name if r.new is not None else ""
    if conditions.healthy(r.rollout, status):
        if paused:
            return
        text = f'ReplicaSet "{name}" has successfully progressed.'
        set_condition(status, r.now, Condition(conditions.PROGRESSING, "True", conditions.NEW_AVAILABLE, text))
    elif conditions.progressing(r.rollout, status) or became_unhealthy:
        lost = became_unhealthy and conditions.completed(status)
        text = "Rollout does not have minimum availability" if lost else f'ReplicaSet "{name}" is progressing.'
        old = conditions.condition_of(status, conditions.PROGRESSING)
        conditions.remove_condition(status, conditions.PROGRESSING)  # its time moves although its reason may not
        reason = "ReplicaSetNotAvailable" if lost else "ReplicaSetUpdated"
        set_condition(status, r.now, Condition(conditions.PROGRESSING, "True", reason, text))
        if old is not None and old["status"] == "True":
            status["conditions"][-1]["lastTransitionTime"] = old["lastTransitionTime"]
    elif not _waits_without_end(r) and conditions.timed_out(r.rollout, status, r.now):
        text = f'ReplicaSet "{name}" has timed out progressing.'
        set_condition(status, r.now, Condition(conditions.PROGRESSING, "False", conditions.TIMED_OUT, text))
        if r.rollout.spec.get("progressDeadlineAbort"):
            r.pauses.abort(text)
            r.event(conditions.ABORTED, text, warning=True)


def _waits_without_end(r: Reconciliation) -> bool:
    """`isIndefiniteStep`: a step that may take as long as it likes."""
    return any(name in (r.rollout.step or {}) for name in ("experiment", "analysis", "pause"))


def _set_available(r: Reconciliation, status: Json) -> None:
    if r.rollout.blue_green is not None:
        active = r.by_hash(status["blueGreen"].get("activeSelector", ""))
        good = active is not None and active.replicas == active.available == r.rollout.replicas
    else:
        good = sum(rs.available for rs in r.all) >= r.rollout.replicas
    text = "Rollout has minimum availability" if good else "Rollout does not have minimum availability"
    set_condition(status, r.now, Condition(conditions.AVAILABLE, str(good), "AvailableReason", text))


def _set_replica_failure(r: Reconciliation, status: Json) -> None:
    """A replica set that cannot make its pods, the new one's first (`getReplicaFailures`)."""
    ordered = [*([r.new] if r.new else []), *r.all]
    failures = (conditions.condition_of(rs.body.get("status", {}), conditions.REPLICA_FAILURE) for rs in ordered)
    found = next((one for one in failures if one is not None), None)
    if found is None:
        conditions.remove_condition(status, conditions.REPLICA_FAILURE)
    else:
        set_condition(
            status,
            r.now,
            Condition(conditions.REPLICA_FAILURE, found["status"], found["reason"], found.get("message", "")),
        )


def _selector_text(selector: Json) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(selector.get("matchLabels", {}).items()))
