"""The conditions in a Rollout's status: how they change, and when a rollout is progressing, healthy or too late.

Upstream: `utils/conditions/conditions.go`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from fakes.argo.objects import Rollout, moment_of, stamp

from rollouts.kube.model import Json

AVAILABLE, PROGRESSING, PAUSED, HEALTHY, COMPLETED = "Available", "Progressing", "Paused", "Healthy", "Completed"
REPLICA_FAILURE, INVALID_SPEC = "ReplicaFailure", "InvalidSpec"

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


def is_true(status: Json, kind: str) -> bool:
    found = condition_of(status, kind)
    return found is not None and found["status"] == "True"


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


def progressing(rollout: Rollout, status: Json) -> bool:
    """Whether anything moved since the status that the rollout has (`RolloutProgressing`)."""
    old = rollout.status
    if rollout.blue_green is not None:
        before, after = old.get("blueGreen", {}), status.get("blueGreen", {})
        moved = any(before.get(key, "") != after.get(key, "") for key in ("activeSelector", "previewSelector"))
    else:
        steps = [one.get("currentStepIndex") for one in (old, status)]
        moved = (
            old.get("stableRS", "") != status.get("stableRS", "")
            or (None not in steps and steps[0] != steps[1])
            or old.get("currentStepHash", "") != status.get("currentStepHash", "")
        )
    old_ones, new_ones = (one.get("replicas", 0) - one.get("updatedReplicas", 0) for one in (old, status))
    return (
        moved
        or status.get("updatedReplicas", 0) != old.get("updatedReplicas", 0)
        or new_ones < old_ones
        or status.get("readyReplicas", 0) > old.get("readyReplicas", 0)
        or status.get("availableReplicas", 0) > old.get("availableReplicas", 0)
    )


def healthy(rollout: Rollout, status: Json) -> bool:
    """All wished pods updated and available, the strategy done, the spec seen (`RolloutHealthy`)."""
    current = status.get("currentPodHash", "")
    if rollout.blue_green is not None:
        colours = status.get("blueGreen", {})
        done = colours.get("activeSelector", "") == current and (
            not rollout.blue_green.get("previewService") or colours.get("previewSelector", "") == current
        )
    else:
        index = status.get("currentStepIndex")
        all_steps = not rollout.steps or index is None or index == len(rollout.steps)
        done = all_steps and completed(status) and status.get("replicas", 0) == rollout.replicas
    seen = rollout.status.get("observedGeneration") == str(rollout.generation)
    return done and seen and status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == rollout.replicas


def completed(status: Json) -> bool:
    """The current version is the stable one (`RolloutCompleted`)."""
    return bool(status.get("stableRS")) and status["stableRS"] == status.get("currentPodHash", "")


def deadline(rollout: Rollout, status: Json) -> datetime | None:
    """When lack of progress becomes `ProgressDeadlineExceeded`; None when nothing is awaited."""
    last = condition_of(status, PROGRESSING)
    if last is None or last["reason"] in (NEW_AVAILABLE, IS_PAUSED, ABORTED):
        return None
    return moment_of(last["lastUpdateTime"]) + timedelta(seconds=rollout.spec.get("progressDeadlineSeconds", 600))


def timed_out(rollout: Rollout, status: Json, now: datetime) -> bool:
    """`RolloutTimedOut`; once it was, it stays until something moves."""
    last = condition_of(status, PROGRESSING)
    until = deadline(rollout, status)
    return last is not None and (last["reason"] == TIMED_OUT or (until is not None and now >= until))
