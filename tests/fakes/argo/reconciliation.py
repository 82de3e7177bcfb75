"""One reconciliation of one Rollout: what it reads, what it will say in the status.

Upstream: `rollout/context.go` (`rolloutContext`), `rollout/controller.go` (`newRolloutContext`), `rollout/sync.go`.
"""

from __future__ import annotations

import copy

from fakes.argo import conditions
from fakes.argo.objects import (
    HASH_LABEL,
    WORKLOAD_GENERATION,
    ReplicaSet,
    Rollout,
)
from fakes.argo.pauses import INCONCLUSIVE, Pauses
from fakes.argo.phase import phase_of
from fakes.argo.world import World

from rollouts.kube.model import Json
from rollouts.kube.resources import REPLICA_SETS, SERVICES


class ReconcileError(Exception):
    """Upstream returns an error: nothing after it happens, the status is not written, and it is tried again."""


class Reconciliation:
    """`rolloutContext`. It mends the objects that it holds as it writes them."""

    def __init__(self, world: World, rollout: Rollout) -> None:
        self.world = world
        self.now = world.now()
        self.rollout = rollout
        owned = world.index.owned(REPLICA_SETS, rollout.body)
        self.all = sorted(map(ReplicaSet, owned), key=lambda rs: (rs.created, rs.name))
        self.new = self._find_new()
        self.stable = next((rs for rs in self.all if rs.hash == rollout.stable_hash), None)
        self.warm = self.new is not None and self.new.scale_down_at is not None
        """The wished version served not long ago and waits for its end (`HasScaleDownDeadline`), as it was read."""
        self.pauses = Pauses(rollout, self.now)
        if rollout.fully_promoted:
            self.pauses.unabort()  # an abort with nothing in progress is taken back (argo-rollouts#1292)
        old = rollout.status
        self.status: Json = {key: copy.deepcopy(old[key]) for key in ("restartedAt",) if key in old}
        """The new status, as far as it is known."""
        self.status |= {"blueGreen": {}, "canary": {"weights": copy.deepcopy(old.get("canary", {}).get("weights"))}}

    def _find_new(self) -> ReplicaSet | None:
        """By its hash, or by a template that is equal without what was injected into it (`FindNewReplicaSet`)."""
        by_hash = next((rs for rs in self.all if rs.hash == self.rollout.pod_hash), None)
        if by_hash is not None or not self.all:
            return by_hash
        wished = template_as_stored(self.world, self.rollout)
        return next((rs for rs in self.all if plain_template(rs) == wished), None)

    @property
    def older(self) -> list[ReplicaSet]:
        """All but the new one."""
        return [rs for rs in self.all if self.new is None or rs.name != self.new.name]

    @property
    def others(self) -> list[ReplicaSet]:
        """Neither new nor stable."""
        return [rs for rs in self.older if self.stable is None or rs.name != self.stable.name]

    @property
    def has_stable(self) -> bool:
        """There is a stable, and it is not the new one (`CheckStableRSExists`)."""
        return self.stable is not None and (self.new is None or self.new.name != self.stable.name)

    @property
    def weights(self) -> Json | None:
        """As this reconciliation set them."""
        weights: Json | None = self.status.get("canary", {}).get("weights")
        return weights

    @property
    def halted(self) -> bool:
        """`haltProgress`: no replica set is scaled and no service switched."""
        return self.rollout.paused or self.pauses.condition(INCONCLUSIVE) is not None

    @property
    def template_or_steps_changed(self) -> bool:
        """`PodTemplateOrStepsChanged`; also when no hash of the steps was ever recorded."""
        return self.rollout.status.get("currentStepHash", "") != self.rollout.step_hash or self.template_changed

    @property
    def template_changed(self) -> bool:
        """`CheckPodSpecChange`."""
        current = self.rollout.current_hash
        return bool(current) and current != (self.new.hash if self.new else self.rollout.pod_hash)

    def by_hash(self, wanted: str) -> ReplicaSet | None:
        return next((rs for rs in self.all if wanted and rs.hash == wanted), None)

    def service(self, name: str) -> Json:
        found = self.world.find(SERVICES, name, self.rollout.namespace)
        if found is None:
            raise ReconcileError(f'service "{name}" not found')
        return found

    def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.world.event(self.rollout.body, reason, message, warning=warning)

    def write_condition(self, kind: str, value: str, reason: str, message: str) -> None:
        """`patchCondition`: one condition at once, with phase and generation."""
        status = copy.deepcopy(self.rollout.status)
        if conditions.set_condition(status, self.now, conditions.Condition(kind, value, reason, message)):
            self.write_status(status)

    def persist(self, status: Json) -> None:
        """`persistRolloutStatus`, with the events that a pause or its end makes."""
        before = bool(self.rollout.status.get("pauseConditions"))
        self.pauses.write(status)
        if self.rollout.spec.get("workloadRef"):
            status["workloadObservedGeneration"] = self.rollout.annotations.get(WORKLOAD_GENERATION, "")
        self.write_status(status)
        after = status.get("pauseConditions") or []
        if after and not before:
            self.event(conditions.IS_PAUSED, f"Rollout is paused ({after[0]['reason']})")
        elif before and not after and "abortedAt" not in status:
            self.event(conditions.RESUMED, "Rollout is resumed")
        self._wake_for_deadline(status)

    def write_status(self, status: Json) -> None:
        status["observedGeneration"] = str(self.rollout.generation)
        status["phase"], message = phase_of(self.rollout, status)
        status.pop("message", None)
        if message:
            status["message"] = message
        self.rollout.body = self.world.report(self.rollout.body, tidy(status))

    def _wake_for_deadline(self, status: Json) -> None:
        """`requeueStuckRollout`."""
        until = conditions.deadline(self.rollout, status)
        waits = not status.get("abort") and not status.get("pauseConditions") and not self.rollout.paused
        if until is not None and until > self.now and waits:
            self.world.wake(until)


def template_as_stored(world: World, rollout: Rollout) -> Json:
    """With the defaults of a ReplicaSet's template: `undo` brings them back (`PodTemplateEqualIgnoreHash`)."""
    spec = {"replicas": 0, "selector": rollout.selector, "template": rollout.template}
    metadata = {"name": f"{rollout.name}-{rollout.pod_hash}", "namespace": rollout.namespace}
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
    stored = world.as_stored(copy.deepcopy(body)) or body
    template: Json = stored["spec"]["template"]
    return template


def plain_template(rs: ReplicaSet) -> Json:
    """Its template without the hash label and without injected metadata."""
    template: Json = copy.deepcopy(rs.body["spec"]["template"])
    metadata = template.get("metadata", {})
    metadata.get("labels", {}).pop(HASH_LABEL, None)
    for part, injected in (rs.injected or {}).items():
        for key in injected:
            metadata.get(part, {}).pop(key, None)
        if not metadata.get(part, True):
            del metadata[part]
    return template


def tidy(status: Json) -> Json:
    """Without what Go's `omitempty` leaves out; the index of the first step and empty strategies stay."""
    kept: Json = {}
    for key, part in status.items():
        if key in ("canary", "blueGreen"):
            kept[key] = tidy(part)
        elif part or key == "currentStepIndex":
            kept[key] = part
    return kept
