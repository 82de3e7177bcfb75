"""The state of a Rollout: what its controller has not processed yet, its health, and the reasons. Pure.

Argo Rollouts' own phase does not tell enough: a rollout whose controller does not process it looks like progress for
ever, and Degraded says nothing of why. A healthy controller reacts within seconds. One whose traffic plugin does not
start reconciles for ever and says so in no condition (argo-rollouts#3918), and Progressing is all that kubectl shows.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from rollouts.argo.model import PauseReason, Rollout, parse_time
from rollouts.kube.objects import at, owns_field
from tidegate.core.model import Json, Value

ABORTED, TIMED_OUT = "RolloutAborted", "ProgressDeadlineExceeded"
INVALID_SPEC = "InvalidSpec"

SPEC_UNOBSERVED = "waiting for rollout spec update to be observed"
WORKLOAD_UNOBSERVED = f"{SPEC_UNOBSERVED} for the reference workload"
UNPAUSING = "waiting for rollout to unpause"


def waiting_for_controller(rollout: Json) -> str:
    """What the controller has not reacted to yet, in upstream's words; empty when it has seen everything."""
    ro = Rollout(rollout)
    if not _observed(ro.status.get("observedGeneration"), ro.generation):
        return SPEC_UNOBSERVED
    if not _observed(ro.status.get("workloadObservedGeneration"), ro.workload_generation):
        return WORKLOAD_UNOBSERVED
    # Status fields do not move the generation: that somebody took the pause away shows in nothing else (IsUnpausing).
    if ro.controller_pause and not ro.pause_conditions:
        return UNPAUSING
    return ""


def is_abort_confirmed(ro: Rollout) -> bool:
    """Whether the controller itself has aborted it.

    `status.abort` is only a request until the controller has written when it aborted (CalculatePauseStatus).
    """
    written = any(condition.get("reason") == ABORTED for condition in ro.conditions)
    return ro.aborted and (bool(ro.status.get("abortedAt")) or written)


def is_pause_stale(ro: Rollout) -> bool:
    """Whether the phase that the controller wrote is a pause that somebody has taken away since."""
    return ro.status.get("phase") == "Paused" and not (ro.pause_conditions or ro.paused_by_spec)


def _observed(observed: object, generation: int) -> bool:
    """`isGenerationObserved`: a number below the generation is behind; anything else is an answer."""
    text = str(observed or "")
    return not text.isdecimal() or int(text) >= generation


NEVER_OBSERVED = "waiting for a controller to see it"
ABORTING = "waiting for rollout to abort"
UNSCALED = "waiting for rollout to scale its new ReplicaSet"

NEW_REPLICA_SET = "NewReplicaSetCreated"
"""The reason of the condition Progressing from the moment a ReplicaSet is made until its first pod is."""

INSTANCE_ID = "argo-rollouts.argoproj.io/controller-instance-id"
"""The label that gives a Rollout to the one controller that was started with this id."""


class PendingReaction(NamedTuple):
    """A change that the controller has not processed yet."""

    text: str
    """In upstream's words where it has some."""
    since: datetime | None
    """Since when, as far as the object tells."""


def pending_reaction(rollout: Json) -> PendingReaction | None:
    """The change that the controller has not processed yet; None when it has processed everything."""
    ro, waiting = Rollout(rollout), waiting_for_controller(rollout)
    if waiting:
        since = _written_at(rollout, "f:spec") if waiting != UNPAUSING else None
        return PendingReaction(waiting, since)
    # Upstream takes a missing observedGeneration, like every text that is no number, for one that was seen.
    if not ro.status.get("observedGeneration"):
        return PendingReaction(NEVER_OBSERVED, parse_time(ro.metadata.get("creationTimestamp")))
    if is_pause_stale(ro):
        return PendingReaction(UNPAUSING, None)
    if ro.aborted and not is_abort_confirmed(ro):
        return PendingReaction(ABORTING, _written_at(rollout, "f:status", "f:abort"))
    return _unscaled(ro)


def likely_cause(ro: Rollout) -> str:
    """Why a controller may not react to this rollout."""
    instance = (ro.metadata.get("labels") or {}).get(INSTANCE_ID)
    if instance:
        return f"only a controller started with --instance-id {instance} looks at it: see whether one runs"
    if not ro.status.get("observedGeneration"):
        return "no Argo Rollouts controller ever looked at it: none runs, or none for this namespace"
    routing = (ro.canary or {}).get("trafficRouting") or {}
    plugins = sorted(routing.get("plugins") or {})
    routers = sorted(key for key, value in routing.items() if isinstance(value, dict))
    if plugins:
        what = f"the traffic plugin {plugins[0]} does not load or fails"
    elif routers:
        what = f"traffic routing by {routers[0]} fails (an object that is not there, or is not allowed)"
    else:
        return "the Argo Rollouts controller does not run or fails on this rollout: its log tells"
    tells = "its log and its metric rollout_reconcile_error tell"
    return f"the controller does not run, or {what} and it ends there each time; {tells}"


def _unscaled(ro: Rollout) -> PendingReaction | None:
    """A new version whose ReplicaSet was made and never scaled.

    `rolloutCanary` writes the status of a new template first, so that its generation is observed. What comes next, the
    ReplicaSet's pods, comes after traffic routing: where that fails, the condition stays what it was for ever.
    """
    scale = at(ro.step, "setCanaryScale", default={})
    wants_pods = ro.step is None or bool(ro.step.get("setWeight")) or any(scale.values())
    routed = (ro.canary or {}).get("trafficRouting") is not None
    idle = not ro.status.get("updatedReplicas") and not ro.pause_conditions and not ro.paused_by_spec
    refused = any(condition.get("type") == "ReplicaFailure" for condition in ro.conditions)
    if not (routed and idle and ro.in_progress and wants_pods) or refused or ro.aborted:
        return None
    made = [each for each in ro.conditions if each.get("reason") == NEW_REPLICA_SET]
    return PendingReaction(UNSCALED, parse_time(made[0].get("lastUpdateTime"))) if made else None


def _written_at(thing: Json, *path: str) -> datetime | None:
    """When somebody last wrote that field, or one below it: of the status through its own door, else not."""
    times = [
        parse_time(entry.get("time"))
        for entry in thing["metadata"].get("managedFields") or []
        if (entry.get("subresource") == "status") == (path[0] == "f:status") and owns_field(entry, path)
    ]
    return max((time for time in times if time), default=None)


UNDECIDED = {PauseReason.ANALYSIS, PauseReason.EXPERIMENT}

_WITHOUT_A_REASON = re.compile(r"Rollout aborted update to revision \d+")
"""`RolloutAbortedMessage` of argo-rollouts; behind it stands, after a colon, why the controller did it."""


def degraded_cause(ro: Rollout, message: str) -> str:
    """What failed: the spec, an analysis, or pods that did not come up."""
    kind = message.partition(":")[0]
    if kind == INVALID_SPEC:
        return "the controller refuses the spec: nothing happens until it is mended"
    if kind == TIMED_OUT:
        failures = [str(each.get("message")) for each in ro.conditions if each.get("type") == "ReplicaFailure"]
        available, updated = ro.status.get("availableReplicas") or 0, ro.status.get("updatedReplicas") or 0
        pods = f"{available} pods available, {updated} of {ro.replicas} updated, no progress for the whole deadline"
        return "; ".join([*failures, pods])
    return _failed_analyses(ro) or ("somebody aborted it" if ro.aborted else "")


def was_aborted_by_hand(ro: Rollout) -> bool:
    """Whether somebody aborted it: a controller that does so by itself says what for, in the same write."""
    if not ro.aborted or _failed_analyses(ro):
        return False
    messages = [str(each.get("message")) for each in ro.conditions if each.get("reason") in (ABORTED, TIMED_OUT)]
    return all(_WITHOUT_A_REASON.fullmatch(message) for message in messages)


def _failed_analyses(ro: Rollout) -> str:
    """The analysis runs that stopped it, of the step and in the background."""
    canary = ro.status.get("canary") or {}
    found = (canary.get(f"current{kind}AnalysisRunStatus") or {} for kind in ("Step", "Background"))
    return "; ".join(
        f"analysis run {run.get('name', '')} ended {run['status']}: {run.get('message') or 'no message'}"
        for run in found
        if run.get("status") in {"Failed", "Error"}
    )


STUCK_AFTER_SECONDS = 60.0
"""A controller that is well reacts within seconds; its full resync is at most minutes away, its retries far less."""


class HealthState(StrEnum):
    """Whether something is to be mended, and by whom."""

    WELL = "well"
    """At rest, on its way, or held by a step or a person: nothing is to be mended."""
    DEGRADED = "degraded"
    """Aborted, past its deadline, or with a spec that the controller refuses."""
    STUCK = "stuck"
    """The controller does not react, though its own rules call it progress."""


class RolloutHealth(Value):
    """How a rollout is, and why."""

    state: HealthState = HealthState.WELL
    message: str = ""
    """In Argo Rollouts' own words."""
    cause: str = ""
    """What is behind it, as far as the object tells."""


def health_of(rollout: Json, *, now: datetime) -> RolloutHealth:
    """How it is at `now`."""
    ro, pending = Rollout(rollout), pending_reaction(rollout)
    if pending is None:
        message = str(ro.status.get("message") or "")
        if ro.status.get("phase") == "Degraded":
            return RolloutHealth(state=HealthState.DEGRADED, message=message, cause=degraded_cause(ro, message))
        return RolloutHealth(message=message)
    since = pending.since or now
    if now - since > timedelta(seconds=STUCK_AFTER_SECONDS):
        message = f"{pending.text} since {since.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
        return RolloutHealth(state=HealthState.STUCK, message=message, cause=likely_cause(ro))
    return RolloutHealth(message=pending.text)
