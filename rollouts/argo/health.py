"""The health of a Rollout: its phase, and what the phase does not tell apart.

Argo Rollouts calls three things by one name each that need different hands: a rollout whose controller fails before it
writes any status looks like progress for ever; one that waits for a person looks like one whose analysis could not
decide; and Degraded says nothing of why.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from rollouts.argo.model import PauseReason, Rollout, as_time
from rollouts.argo.phase import (
    INVALID_SPEC,
    SPEC_UNSEEN,
    TIMED_OUT,
    WORKLOAD_UNSEEN,
    Phase,
    RolloutPhase,
    phase_of,
    says_aborted,
    waiting_for_controller,
)
from rollouts.argo.steps import step_text
from rollouts.kube.model import Json
from tidegate.core.model import Value

STUCK_AFTER_SECONDS = 60.0
"""A controller that is well reacts within seconds; its full resync is at most minutes away, its retries far less."""

NEVER_SEEN = "waiting for a controller to see it"

INSTANCE_ID = "argo-rollouts.argoproj.io/controller-instance-id"
"""The label that gives a Rollout to the one controller that was started with this id."""


class State(StrEnum):
    """What an operator would do something different about."""

    HEALTHY = "healthy"
    PROGRESSING = "progressing"
    PAUSED = "paused"
    """By a step, before the switch of blue-green, or by a person."""
    INCONCLUSIVE = "paused-inconclusive"
    """An analysis or an experiment could not decide; somebody has to."""
    DEGRADED = "degraded"
    """Aborted, past its deadline, or with a spec that the controller refuses."""
    STUCK = "stuck"
    """The controller does not react, though its own rules call it progress."""


class Health(Value):
    """How a rollout is, and why."""

    state: State
    message: str = ""
    """In Argo Rollouts' own words."""
    cause: str = ""
    """What is behind it, as far as the object tells."""


class Lag(Value):
    """The controller has not reacted to something."""

    since: datetime
    observed: str
    """The generation that it last saw: when this moves it works, however far behind."""


def lag_of(rollout: Json, *, now: datetime, before: Lag | None = None, workload: Json | None = None) -> Lag | None:
    """Since when the controller owes a reaction; None when it owes none. `before` is what was said at the last look.

    At the first look the time is that of the last change of the spec that `metadata.managedFields` knows.
    """
    if not _owed(rollout, workload):
        return None
    observed = str(Rollout(rollout).status.get("observedGeneration") or "")
    if before:
        return before if before.observed == observed else Lag(since=now, observed=observed)
    return Lag(since=min(_wish_since(rollout, workload) or now, now), observed=observed)


def health_of(
    rollout: Json,
    *,
    now: datetime,
    lagging_since: datetime | None = None,
    stuck_after_seconds: float = STUCK_AFTER_SECONDS,
    workload: Json | None = None,
) -> Health:
    """How it is at `now`. `lagging_since` is `lag_of(...).since` of whoever watches; without it, the object's own."""
    seen, phase = Rollout(rollout), phase_of(rollout, workload=workload)
    owed = _owed(rollout, workload)
    if owed:
        lag = lag_of(rollout, now=now, workload=workload)
        since = lagging_since or (lag.since if lag else now)
        if now - since > timedelta(seconds=stuck_after_seconds):
            message = f"{owed} since {since.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
            return Health(state=State.STUCK, message=message, cause=likely_cause(seen))
        return Health(state=State.PROGRESSING, message=owed)
    if phase.phase is Phase.DEGRADED:
        return Health(state=State.DEGRADED, message=phase.message, cause=_why_degraded(seen, phase))
    if phase.phase is Phase.PAUSED:
        return _paused(seen, phase)
    state = State.HEALTHY if phase.phase is Phase.HEALTHY else State.PROGRESSING
    return Health(state=state, message=phase.message, cause="" if state is State.HEALTHY else _where(seen))


def likely_cause(seen: Rollout) -> str:
    """Why a controller may not react to this rollout: it writes no condition when it fails before its status."""
    instance = (seen.metadata.get("labels") or {}).get(INSTANCE_ID)
    if instance:
        return f"only a controller started with --instance-id {instance} looks at it: see whether one runs"
    if not seen.status.get("observedGeneration"):
        return "no Argo Rollouts controller ever looked at it: none runs, or none for this namespace"
    routing = (seen.canary or {}).get("trafficRouting") or {}
    plugins = sorted(routing.get("plugins") or {})
    if plugins:
        return (
            f"the traffic plugin {plugins[0]} does not load or fails: the controller then ends before it writes "
            "status; its log and its metric rollout_reconcile_error tell"
        )
    routers = sorted(key for key, value in routing.items() if isinstance(value, dict))
    if routers:
        return (
            f"traffic routing by {routers[0]} fails (an object that is not there, or is not allowed): the controller "
            "then ends before it writes status; its log and its metric rollout_reconcile_error tell"
        )
    return "the Argo Rollouts controller does not run or fails on this rollout: its log tells"


def _owed(rollout: Json, workload: Json | None) -> str:
    seen, waiting = Rollout(rollout), waiting_for_controller(rollout, workload=workload)
    if waiting:
        return waiting
    # Upstream takes a missing observedGeneration, like every text that is no number, for one that was seen.
    if not seen.status.get("observedGeneration"):
        return NEVER_SEEN
    # `status.abort` is a wish until the controller has written when it aborted (CalculatePauseStatus).
    reacted = seen.status.get("abortedAt") or says_aborted(seen)
    return "waiting for rollout to abort" if seen.aborted and not reacted else ""


def _wish_since(rollout: Json, workload: Json | None) -> datetime | None:
    waiting = waiting_for_controller(rollout, workload=workload)
    changed = {SPEC_UNSEEN: rollout, WORKLOAD_UNSEEN: workload}.get(waiting)
    if changed:
        return _spec_changed_at(changed)
    seen = Rollout(rollout)
    return None if seen.status.get("observedGeneration") else as_time(seen.metadata.get("creationTimestamp"))


def _spec_changed_at(thing: Json) -> datetime | None:
    times = [
        as_time(entry.get("time"))
        for entry in thing["metadata"].get("managedFields") or []
        if entry.get("subresource") != "status" and "f:spec" in (entry.get("fieldsV1") or {})
    ]
    return max((time for time in times if time), default=None)


def _paused(seen: Rollout, phase: RolloutPhase) -> Health:
    reasons = {condition.get("reason") for condition in seen.pause_conditions}
    if reasons & {PauseReason.ANALYSIS, PauseReason.EXPERIMENT}:
        return Health(state=State.INCONCLUSIVE, message=phase.message, cause=_undecided(seen))
    cause = "spec.paused is set" if seen.paused_by_spec and not reasons else _where(seen)
    return Health(state=State.PAUSED, message=phase.message, cause=cause)


def _undecided(seen: Rollout) -> str:
    runs = [run for run in seen.analyses if run.phase == "Inconclusive"]
    return "; ".join(f"analysis run {run.run} is inconclusive: {run.message or 'no message'}" for run in runs)


def _why_degraded(seen: Rollout, phase: RolloutPhase) -> str:
    kind = phase.message.partition(":")[0]
    if kind == INVALID_SPEC:
        return "the controller refuses the spec: nothing happens until it is mended"
    if kind == TIMED_OUT:
        failures = [str(known.get("message")) for known in seen.conditions if known.get("type") == "ReplicaFailure"]
        available, updated = seen.status.get("availableReplicas") or 0, seen.status.get("updatedReplicas") or 0
        pods = f"{available} pods available, {updated} of {seen.replicas} updated, no progress for the whole deadline"
        return "; ".join([*failures, pods])
    failed = [run for run in seen.analyses if run.phase in {"Failed", "Error"}]
    told = [f"analysis run {run.run} ended {run.phase}: {run.message or 'no message'}" for run in failed]
    return "; ".join(told) or ("somebody aborted it" if seen.aborted else "")


def _where(seen: Rollout) -> str:
    if seen.step is None or not seen.in_progress:
        return ""
    return f"step {seen.step_index + 1} of {len(seen.steps)}: {step_text(seen.step)}"
