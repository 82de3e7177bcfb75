"""The phase of a Rollout: `utils/rollout/rolloututil.go` of argo-rollouts, rule by rule and word by word.

Clients ask `phase_of`. The controller asks `calculated_phase` and keeps the answer in `status.phase`. The order of
the rules is upstream's: the first that applies decides.
"""

from __future__ import annotations

import re
from enum import StrEnum

from rollouts.argo.model import Rollout, as_time
from rollouts.kube.model import Json
from tidegate.core.model import Value

ABORTED, TIMED_OUT = "RolloutAborted", "ProgressDeadlineExceeded"
INVALID_SPEC = "InvalidSpec"

SPEC_UNSEEN = "waiting for rollout spec update to be observed"
UNPAUSING = "waiting for rollout to unpause"
WORKLOAD_UNSEEN = "waiting for rollout spec update to be observed for the reference workload"


class Phase(StrEnum):
    """What Argo Rollouts says that a rollout is doing."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"


class RolloutPhase(Value):
    """A phase and its reason, as kubectl prints them."""

    phase: Phase
    message: str = ""


def phase_of(rollout: Json, *, workload: Json | None = None) -> RolloutPhase:
    """`GetRolloutPhase`. `workload` is the object that `spec.workloadRef` names.

    Upstream compares the workload's generation through a field that never reaches clients (`json:"-"`), so that
    kubectl skips the rule. Here it is compared with the workload's own `metadata.generation`.
    """
    waiting = waiting_for_controller(rollout, workload=workload)
    if waiting:
        return RolloutPhase(phase=Phase.PROGRESSING, message=waiting)
    status = Rollout(rollout).status
    # A word that a newer controller may have is no answer here; the rules are.
    if status.get("phase") in set(Phase):
        return RolloutPhase(phase=Phase(status["phase"]), message=status.get("message") or "")
    return calculated_phase(rollout)


def waiting_for_controller(rollout: Json, *, workload: Json | None = None) -> str:
    """What the controller has not reacted to yet, in upstream's words; empty when it has seen everything."""
    seen = Rollout(rollout)
    if not _observed(seen.status.get("observedGeneration"), seen.generation):
        return SPEC_UNSEEN
    # Status fields do not move the generation: that somebody took the pause away shows in nothing else (IsUnpausing).
    if seen.controller_pause and not seen.pause_conditions:
        return UNPAUSING
    if workload and not _workload_observed(seen, workload):
        return WORKLOAD_UNSEEN
    return ""


def says_aborted(seen: Rollout) -> bool:
    """Whether the controller has written that it aborted, and not yet that it goes on."""
    return any(condition.get("reason") == ABORTED for condition in seen.conditions)


def pause_is_stale(seen: Rollout) -> bool:
    """Whether the phase that the controller wrote is a pause that somebody has taken away since."""
    return seen.status.get("phase") == Phase.PAUSED and not (seen.pause_conditions or seen.paused_by_spec)


def calculated_phase(rollout: Json) -> RolloutPhase:
    """`CalculateRolloutPhase`: of spec and status alone, as if the controller had seen everything."""
    seen = Rollout(rollout)
    problem = _problem(seen)
    if problem:
        return RolloutPhase(phase=Phase.DEGRADED, message=problem)
    if seen.paused_by_spec:
        return RolloutPhase(phase=Phase.PAUSED, message="manually paused")
    if seen.pause_conditions:
        return RolloutPhase(phase=Phase.PAUSED, message=str(seen.pause_conditions[0].get("reason", "")))
    pending = _pending_replicas(seen) or _pending_blue_green(seen) or _pending_canary(seen)
    if pending:
        return RolloutPhase(phase=Phase.PROGRESSING, message=pending)
    return RolloutPhase(phase=Phase.HEALTHY)


def _observed(observed: object, generation: int) -> bool:
    """`isGenerationObserved`: a number below the generation is behind; anything else is an answer.

    Rollouts before 0.10 wrote a hash there, which may happen to consist of digits and is then a large number.
    """
    text = str(observed or "")
    return not re.fullmatch(r"[+-]?[0-9]+", text) or int(text) >= generation


def _workload_observed(seen: Rollout, workload: Json) -> bool:
    """`isWorkloadGenerationObserved`, against the workload itself."""
    text = str(seen.status.get("workloadObservedGeneration") or "")
    if not seen.workload_ref or not re.fullmatch(r"[0-9]{1,9}", text):
        return True
    return int(text) == int(workload["metadata"].get("generation") or 0)


def _problem(seen: Rollout) -> str:
    for condition in seen.conditions:
        message = condition.get("message") or ""
        if condition.get("type") == INVALID_SPEC:
            return f"{INVALID_SPEC}: {message}"
        if condition.get("reason") in {ABORTED, TIMED_OUT}:
            return f"{condition['reason']}: {message}"
    return ""


def _pending_replicas(seen: Rollout) -> str:
    restart_at = as_time(seen.spec.get("restartAt"))
    if restart_at and restart_at != as_time(seen.status.get("restartedAt")):
        return "rollout is restarting"
    updated, available = seen.status.get("updatedReplicas") or 0, seen.status.get("availableReplicas") or 0
    if updated < seen.replicas:
        return "more replicas need to be updated"
    if available < updated:
        return "updated replicas are still becoming available"
    return ""


def _pending_blue_green(seen: Rollout) -> str:
    if seen.blue_green is None:
        return ""
    status = seen.status.get("blueGreen") or {}
    if not status.get("activeSelector") or status["activeSelector"] != seen.pod_hash:
        return "active service cutover pending"
    if seen.stable_hash and not seen.in_progress:
        return ""
    if seen.blue_green.get("postPromotionAnalysis") is not None and not _done(
        status.get("postPromotionAnalysisRunStatus")
    ):
        return "waiting for analysis to complete"
    return "waiting for post-promotion verification to complete"


def _pending_canary(seen: Rollout) -> str:
    if seen.canary is None or seen.blue_green is not None:
        return ""
    # With traffic routing and blue-green, old pods stay for scaleDownDelaySeconds without being waited for.
    replicas, updated = seen.status.get("replicas") or 0, seen.status.get("updatedReplicas") or 0
    if seen.canary.get("trafficRouting") is None and replicas > updated:
        return "old replicas are pending termination"
    if not seen.stable_hash or seen.in_progress:
        return "waiting for all steps to complete"
    return ""


def _done(run: Json | None) -> bool:
    return bool(run) and (run or {}).get("status") in {"Successful", "Failed", "Error", "Inconclusive"}
