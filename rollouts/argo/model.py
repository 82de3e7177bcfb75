"""A Rollout, read as Argo Rollouts reads it: its fields, its revisions, its steps and its pauses. Pure.

A delivery decides when users move, so the steps that it renders only ever pause for good: those are its pause points,
one for each weight. What stands between two of them (more engines for the canary, then its weight) belongs to the
second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rollouts.errors import NotPossible
from rollouts.kube.objects import at
from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH

REVISION = "rollout.argoproj.io/revision"
"""The annotation that numbers a ReplicaSet among those of its Rollout."""

WORKLOAD_GENERATION = "rollout.argoproj.io/workload-generation"
"""Annotation of a Rollout: the generation of its `workloadRef`."""


class PauseReason(StrEnum):
    """Why the controller holds a rollout (`PauseReason` in types.go)."""

    STEP = "CanaryPauseStep"
    ANALYSIS = "InconclusiveAnalysisRun"
    EXPERIMENT = "InconclusiveExperiment"


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
    def set_weight(self) -> int:
        """The weight that its steps ask for now (`GetCurrentSetWeight`); what users see may be another."""
        if self.aborted:
            return 0
        if self.step is None:
            return 100
        weights = [step["setWeight"] for step in self.steps[: self.step_index + 1] if step.get("setWeight") is not None]
        return int(weights[-1]) if weights else 0

    @property
    def lost_users(self) -> bool:
        """Whether the controller itself took the users of a pause's weight from the canary, for want of a ready pod.

        It is no step and no abort: `reconcileTrafficRouting` sends nobody to a canary without available replicas, and
        notes that in `status.canary.weights`. They come back with its pods.
        """
        noted = at(self.status, "canary", "weights", "canary", "weight")
        return self.set_weight > 0 and "pause" in (self.step or {}) and noted == 0


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time (RFC 3339) as a moment; None when there is none."""
    return datetime.fromisoformat(text) if text else None


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


def replica_set_of(rollout: Json, replica_sets: Sequence[Json], revision: int) -> Json:
    """The ReplicaSet of a revision.

    Raises:
        NotPossible: when there is none.
    """
    own = sorted(controlled_by(rollout, replica_sets), key=revision_of, reverse=True)
    found = next((item for item in own if revision_of(item) == revision), None)
    if found is None:
        known = ", ".join(str(revision_of(item)) for item in own) or "none"
        raise NotPossible(f"unable to find specified revision {revision} in history", hint=f"there are: {known}")
    return found


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
    return rollout.step_index == hold.pause and is_paused_by(rollout, PauseReason.STEP)


def is_paused_by(rollout: Rollout, reason: PauseReason) -> bool:
    """Whether the controller itself waits for that reason."""
    return any(condition.get("reason") == reason for condition in rollout.pause_conditions)
