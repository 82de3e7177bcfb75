"""What a Rollout's status says: its conditions, its pauses and aborts, its phase.

Upstream: `utils/conditions/conditions.go`, `rollout/pause.go`.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from fakes.argo.objects import Rollout, stamp

from tidegate.core.model import Json

PROGRESSING, INVALID_SPEC = "Progressing", "InvalidSpec"

ABORTED = "RolloutAborted"
TIMED_OUT = "ProgressDeadlineExceeded"
NEW_AVAILABLE = "NewReplicaSetAvailable"
IS_PAUSED = "RolloutPaused"
RESUMED = "RolloutResumed"


class Condition(NamedTuple):
    """What one says; its times are the status's."""

    kind: str
    value: str
    """`True`, `False` or `Unknown`."""
    reason: str
    message: str


def condition_of(status: Json, kind: str) -> Json | None:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), None)


def set_condition(status: Json, now: datetime, new: Condition) -> bool:
    """Set it, and say whether it changed: one of the same status and reason stays, its message too.

    `lastTransitionTime` moves with the status only (`SetRolloutCondition`).
    """
    old = condition_of(status, new.kind)
    if old is not None and (old["status"], old["reason"]) == (new.value, new.reason):
        return False
    since = old["lastTransitionTime"] if old is not None and old["status"] == new.value else stamp(now)
    remove_condition(status, new.kind)
    status["conditions"].append(
        {
            "type": new.kind,
            "status": new.value,
            "reason": new.reason,
            "message": new.message,
            "lastUpdateTime": stamp(now),
            "lastTransitionTime": since,
        }
    )
    return True


def remove_condition(status: Json, kind: str) -> None:
    status["conditions"] = [one for one in status.get("conditions", ()) if one["type"] != kind]


def healthy(rollout: Rollout, status: Json) -> bool:
    """All desired pods updated and available, the strategy done, the spec seen (`RolloutHealthy`)."""
    index = status.get("currentStepIndex")
    all_steps = not rollout.steps or index is None or index == len(rollout.steps)
    done = all_steps and completed(status) and status.get("replicas", 0) == rollout.replicas
    seen = rollout.status.get("observedGeneration") == str(rollout.generation)
    return done and seen and status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == rollout.replicas


def completed(status: Json) -> bool:
    """The current version is the stable one (`RolloutCompleted`)."""
    return bool(status.get("stableRS")) and status["stableRS"] == status.get("currentPodHash", "")


def phase_of(rollout: Rollout, status: Json) -> tuple[str, str]:
    """Phase and message of a spec and the status that is about to be written (`CalculateRolloutPhase`)."""
    for one in status.get("conditions", ()):
        if one["type"] == INVALID_SPEC or one["reason"] in (ABORTED, TIMED_OUT):
            return "Degraded", f"{one['reason']}: {one['message']}"
    if rollout.paused:
        return "Paused", "manually paused"
    if pauses := status.get("pauseConditions"):
        return "Paused", pauses[0]["reason"]
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated < rollout.replicas:
        return "Progressing", "more replicas need to be updated"
    if available < updated:
        return "Progressing", "updated replicas are still becoming available"
    return ("Healthy", "") if completed(status) else ("Progressing", "waiting for all steps to complete")


CANARY_STEP = "CanaryPauseStep"


class Pauses:
    """`pauseContext`."""

    def __init__(self, rollout: Rollout, now: datetime) -> None:
        self._rollout = rollout
        self._now = now
        self._added: list[str] = []
        self._removed: set[str] = set()
        self._cleared = self._unabort = False

    @property
    def aborted(self) -> bool:
        return not self._unabort and self._rollout.aborted

    @property
    def adds(self) -> bool:
        return bool(self._added)

    def unabort(self) -> None:
        self._unabort = True

    def add(self, reason: str) -> None:
        self._added.append(reason)

    def remove(self, reason: str) -> None:
        self._removed.add(reason)

    def clear(self) -> None:
        self._cleared = True

    def condition(self, reason: str) -> Json | None:
        return next((one for one in self._rollout.status.get("pauseConditions", ()) if one["reason"] == reason), None)

    @property
    def step_completed(self) -> bool:
        """`CompletedCanaryPauseStep`: somebody took the pause away."""
        return bool(self._rollout.status.get("controllerPause")) and self.condition(CANARY_STEP) is None

    def write(self, status: Json) -> None:
        """`CalculatePauseStatus`: an abort ends every pause; `abortedAt` is when it was seen first."""
        status.pop("abort", None)
        status.pop("abortedAt", None)
        if self.aborted:
            status["abort"] = True
            status["abortedAt"] = self._rollout.status.get("abortedAt") or stamp(self._now)
            return
        if self._cleared:
            return
        old = self._rollout.status.get("pauseConditions") or []
        conditions = [one for one in old if one["reason"] not in self._removed]
        reasons = {one["reason"] for one in old}
        new = [reason for reason in dict.fromkeys(self._added) if reason not in reasons]
        conditions += [{"reason": reason, "startTime": stamp(self._now)} for reason in new]
        if conditions:
            status["controllerPause"] = bool(new) or bool(self._rollout.status.get("controllerPause"))
            status["pauseConditions"] = conditions
