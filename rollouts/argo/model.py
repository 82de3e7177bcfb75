"""A Rollout, read as Argo Rollouts reads it: fields, revisions, steps and pauses; its health, and the reasons. Pure.

A delivery decides when users move, so the steps that it renders only ever pause for good: those are its pause points,
one for each weight. What stands between two of them (more engines for the canary, then its weight) belongs to the
second one.

Argo Rollouts' own phase does not tell enough: a rollout whose controller does not process it looks like progress for
ever, and Degraded says nothing of why. A healthy controller reacts within seconds. One whose traffic plugin does not
start reconciles for ever and says so in no condition (argo-rollouts#3918), and Progressing is all that kubectl shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from rollouts.errors import NotPossible
from rollouts.kube.objects import at, owns_field, time_at
from tidegate.core.model import Json, Value
from tidegate.core.names import POD_TEMPLATE_HASH

REVISION = "rollout.argoproj.io/revision"
"""The annotation that numbers a ReplicaSet among those of its Rollout."""

WORKLOAD_GENERATION = "rollout.argoproj.io/workload-generation"
"""Annotation of a Rollout: the generation of its `workloadRef`."""


PAUSED_BY_STEP = "CanaryPauseStep"
UNDECIDED = frozenset({"InconclusiveAnalysisRun", "InconclusiveExperiment"})
"""Why the controller holds a rollout (`PauseReason` in types.go)."""


class Rollout:
    """Reads one object; what is missing in it has the value that Go's zero values and the controller give it."""

    def __init__(self, rollout: Json) -> None:
        metadata: Json = rollout.get("metadata") or {}
        spec: Json = rollout.get("spec") or {}
        status: Json = rollout.get("status") or {}
        self.metadata, self.spec, self.status = metadata, spec, status
        self.name = str(metadata.get("name", ""))
        self.resource_version = str(metadata.get("resourceVersion", ""))
        self.generation = int(metadata.get("generation") or 0)
        """Moves with every change of `spec`, and with nothing else."""
        self.workload_generation = int((metadata.get("annotations") or {}).get(WORKLOAD_GENERATION) or 0)
        """That of its `workloadRef`; 0 where it has none."""
        self.canary: Json | None = (spec.get("strategy") or {}).get("canary")
        """The canary strategy; None where another one is chosen."""
        self.steps: list[Json] = (self.canary or {}).get("steps") or []
        self.step_index = int(status.get("currentStepIndex") or 0)
        """The step it is at; as many as there are steps when all are done (`GetCurrentCanaryStep`)."""
        self.step = self.steps[self.step_index] if self.step_index < len(self.steps) else None
        """The step that runs now; None when there are no steps or all are done."""
        self.replicas = 1 if spec.get("replicas") is None else int(spec["replicas"])
        """The pods that are asked for (`GetReplicasOrDefault`)."""
        self.pod_hash = str(status.get("currentPodHash") or "")
        """The template that the spec asks for, as the controller last saw it."""
        self.stable_hash = str(status.get("stableRS") or "")
        """The template that was last promoted in full; empty before the first one was."""
        self.in_progress = self.pod_hash != self.stable_hash
        """Whether a version is on its way to replace the stable one (not `IsFullyPromoted`)."""
        self.paused_by_spec = bool(spec.get("paused"))
        """Somebody set `spec.paused`."""
        self.pause_conditions: list[Json] = status.get("pauseConditions") or []
        self.controller_pause = bool(status.get("controllerPause"))
        """The controller added a pause condition, and has not seen it removed yet."""
        self.aborted = bool(status.get("abort"))
        self.promoting_in_full = bool(status.get("promoteFull"))
        self.conditions: list[Json] = status.get("conditions") or []

    @property
    def lost_users(self) -> bool:
        """Whether the controller itself took the users of a pause's weight from the canary, for want of a ready pod.

        It is no step and no abort: `reconcileTrafficRouting` sends nobody to a canary without available replicas, and
        notes that in `status.canary.weights`. They come back with its pods.
        """
        if self.aborted or "pause" not in (self.step or {}):
            return False
        asked = [step["setWeight"] for step in self.steps[: self.step_index] if step.get("setWeight") is not None]
        return bool(asked and asked[-1]) and at(self.status, "canary", "weights", "canary", "weight") == 0


def revision_of(thing: Json) -> int:
    """The revision that a ReplicaSet belongs to; 0 when it does not say."""
    text = str(((thing.get("metadata") or {}).get("annotations") or {}).get(REVISION, ""))
    return int(text) if text.isdecimal() else 0


def hash_of(thing: Json) -> str:
    """The pod template hash that a ReplicaSet and its pods carry; empty when it does not say."""
    return str((thing["metadata"].get("labels") or {}).get(POD_TEMPLATE_HASH, ""))


def controlled_by(rollout: Json, things: Sequence[Json]) -> list[Json]:
    """Those that this very Rollout controls (`IsControlledBy`); one of the same name before it does not count."""
    uid = rollout["metadata"].get("uid")
    owners = [(thing, thing["metadata"].get("ownerReferences") or []) for thing in things]
    return [thing for thing, of in owners if any(each.get("controller") and each.get("uid") == uid for each in of)]


@dataclass(frozen=True)
class PausePoint:
    """A pause without an end, and the way to it."""

    weight: int
    """Percent of users that the canary has there."""
    first: int
    """The first step on the way up: engines come before users."""
    weigh: int
    """The step that sets the weight: on the way down users go before engines."""
    pause: int
    """The pause itself."""


def pause_points(steps: Sequence[Json]) -> tuple[PausePoint, ...]:
    """All of them, in order."""
    found: list[PausePoint] = []
    weight, first, weigh = 0, 0, 0
    for index, step in enumerate(steps):
        if step.get("setWeight") is not None:
            weight, weigh = int(step["setWeight"]), index
        if "pause" in step and not (step["pause"] or {}).get("duration"):
            found.append(PausePoint(weight=weight, first=first, weigh=max(weigh, first), pause=index))
            first = index + 1
    return tuple(found)


def path_to_weight(rollout: Rollout, weight: int) -> tuple[PausePoint, ...]:
    """The holds to go through until the canary has that weight; empty when it is there.

    Upwards through each one in between, so that engines are up before users come; downwards at once.

    Raises:
        NotPossible: when no step has that weight.
    """
    holds = pause_points(rollout.steps)
    wanted = next((hold for hold in holds if hold.weight == weight), None)
    if wanted is None:
        known = ", ".join(f"{hold.weight} %" for hold in holds)
        raise NotPossible(
            f"{rollout.name} has no step with {weight} % of users", hint=f"its steps have {known}" if known else None
        )
    if is_resting_at(rollout, wanted):
        return ()
    if rollout.step_index > wanted.pause:
        return (wanted,)
    # A hold that it is on its way to is repeated: the one who asked for it first may be gone.
    return tuple(
        hold for hold in holds if rollout.step_index <= hold.pause <= wanted.pause and not is_resting_at(rollout, hold)
    )


def entry_step(rollout: Rollout, hold: PausePoint) -> int:
    """The step to be put at in order to come to rest at `hold`."""
    if rollout.step_index > hold.pause:
        return hold.weigh
    # On its way there, or at its pause already: that goes on by itself.
    return max(rollout.step_index, hold.first)


def is_resting_at(rollout: Rollout, hold: PausePoint) -> bool:
    """Whether the controller has come to that pause, and waits."""
    return rollout.step_index == hold.pause and PAUSED_BY_STEP in {
        each.get("reason") for each in rollout.pause_conditions
    }


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
        return PendingReaction(NEVER_OBSERVED, time_at(ro.metadata, "creationTimestamp"))
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
    if not routing:
        return "the Argo Rollouts controller does not run or fails on this rollout: its log tells"
    if plugins := sorted(routing.get("plugins") or {}):
        what = f"the traffic plugin {plugins[0]} does not load or fails"
    else:
        by = min((key for key, value in routing.items() if isinstance(value, dict)), default="nobody")
        what = f"traffic routing by {by} fails (an object that is not there, or is not allowed)"
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
    return PendingReaction(UNSCALED, time_at(made[0], "lastUpdateTime")) if made else None


def _written_at(thing: Json, *path: str) -> datetime | None:
    """When somebody last wrote that field, or one below it: of the status through its own door, else not."""
    times = [
        time_at(entry, "time")
        for entry in thing["metadata"].get("managedFields") or []
        if (entry.get("subresource") == "status") == (path[0] == "f:status") and owns_field(entry, path)
    ]
    return max((time for time in times if time), default=None)


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
