"""The phase that the controller writes into the status.

Upstream: `utils/rollout/rolloututil.go`, `CalculateRolloutPhase`. Written apart from `rollouts.argo.phase`, so that
each is checked against the other.
"""

from __future__ import annotations

from fakes.argo.conditions import ABORTED, INVALID_SPEC, TIMED_OUT, completed
from fakes.argo.objects import Rollout

from rollouts.kube.model import Json


def phase_of(rollout: Rollout, status: Json) -> tuple[str, str]:
    """Phase and message of a spec and the status that is about to be written; the first rule that fits."""
    for condition in status.get("conditions", ()):
        if condition["type"] == INVALID_SPEC:
            return "Degraded", f"{INVALID_SPEC}: {condition['message']}"
        if condition["reason"] in (ABORTED, TIMED_OUT):
            return "Degraded", f"{condition['reason']}: {condition['message']}"
    if rollout.paused:
        return "Paused", "manually paused"
    if pauses := status.get("pauseConditions"):
        return "Paused", str(pauses[0]["reason"])
    waits = _waits_for(rollout, status)
    return ("Progressing", waits) if waits else ("Healthy", "")


def _waits_for(rollout: Rollout, status: Json) -> str:
    restart = rollout.spec.get("restartAt")
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if restart and restart != status.get("restartedAt"):
        return "rollout is restarting"
    if updated < rollout.replicas:
        return "more replicas need to be updated"
    if available < updated:
        return "updated replicas are still becoming available"
    if rollout.blue_green is not None:
        return _blue_green_waits_for(rollout.blue_green, status)
    if rollout.traffic is None and status.get("replicas", 0) > updated:
        return "old replicas are pending termination"
    return "" if completed(status) else "waiting for all steps to complete"


def _blue_green_waits_for(strategy: Json, status: Json) -> str:
    colours = status.get("blueGreen", {})
    if colours.get("activeSelector", "") != status.get("currentPodHash") or not colours.get("activeSelector"):
        return "active service cutover pending"
    if completed(status):
        return ""
    run = colours.get("postPromotionAnalysisRunStatus")
    if strategy.get("postPromotionAnalysis") and (run is None or run["status"] in ("", "Pending", "Running")):
        return "waiting for analysis to complete"
    return "waiting for post-promotion verification to complete"
