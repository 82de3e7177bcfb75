"""One reconciliation of one Rollout: what it reads, and what it says in the status.

Upstream: `rollout/context.go` (`rolloutContext`), `rollout/controller.go` (`newRolloutContext`), `rollout/sync.go`
(`calculateBaseStatus`, `calculateRolloutConditions`, `promoteStable`, `resetRolloutStatus`,
`isRollbackWithinWindow`), and for the labels that pods carry for their role `rollout/ephemeralmetadata.go`: `undo` of
the kubectl plugin copies a template with what was injected into it, which then is a new one.
"""

from __future__ import annotations

import copy
import json
from datetime import timedelta

from fakes.argo import conditions
from fakes.argo.conditions import Condition, Pauses, phase_of, set_condition
from fakes.argo.objects import EPHEMERAL_METADATA, HASH_LABEL, ReplicaSet, Rollout, moment_of
from fakes.argo.world import World

from rollouts.kube.resources import PODS, REPLICA_SETS, SERVICES
from tidegate.core.model import Json


class ReconcileError(Exception):
    """Upstream returns an error: nothing after it happens, the status is not written, and it is tried again."""


class Reconciliation:
    """`rolloutContext`. It mends the objects that it holds as it writes them."""

    def __init__(self, world: World, rollout: Rollout) -> None:
        self.world = world
        self.now = world.now()
        self.rollout = rollout
        owned = world.owned(REPLICA_SETS, rollout.body)
        self.all = sorted(map(ReplicaSet, owned), key=lambda rs: (rs.created, rs.name))
        self.new = self._find_new()
        self.stable = next((rs for rs in self.all if rs.hash == rollout.stable_hash), None)
        self.pauses = Pauses(rollout, self.now)
        if rollout.fully_promoted:
            self.pauses.unabort()  # an abort with nothing in progress is taken back (argo-rollouts#1292)
        old = rollout.status
        weights = copy.deepcopy(old.get("canary", {}).get("weights"))
        self.status: Json = {"canary": {"weights": weights}}
        """The new status, as far as it is known."""

    def _find_new(self) -> ReplicaSet | None:
        """By its hash, or by a template that is equal without what was injected into it (`FindNewReplicaSet`)."""
        if not self.all:
            return None
        wanted = self.rollout.pod_hash
        by_hash = next((rs for rs in self.all if rs.hash == wanted), None)
        if by_hash is not None:
            return by_hash
        desired = template_as_stored(self.world, self.rollout)
        return next((rs for rs in self.all if plain_template(rs) == desired), None)

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
    def halted(self) -> bool:
        """`haltProgress`: no replica set is scaled and no service switched."""
        return self.rollout.paused

    @property
    def template_or_steps_changed(self) -> bool:
        """`PodTemplateOrStepsChanged`; also when no hash of the steps was ever recorded."""
        return self.rollout.status.get("currentStepHash", "") != self.rollout.step_hash or self.template_changed

    @property
    def template_changed(self) -> bool:
        """`CheckPodSpecChange`."""
        current = self.rollout.current_hash
        return bool(current) and current != (self.new.hash if self.new else self.rollout.pod_hash)

    def service(self, name: str) -> Json:
        found = self.world.find(SERVICES, name, self.rollout.namespace)
        if found is None:
            raise ReconcileError(f'service "{name}" not found')
        return found

    def write_condition(self, kind: str, value: str, reason: str, message: str) -> None:
        """`patchCondition`: one condition at once, with phase and generation."""
        status = copy.deepcopy(self.rollout.status)
        if conditions.set_condition(status, self.now, conditions.Condition(kind, value, reason, message)):
            self.write_status(status)

    def persist(self, status: Json) -> None:
        """`persistRolloutStatus`."""
        self.pauses.write(status)
        self.write_status(status)

    def write_status(self, status: Json) -> None:
        status["observedGeneration"] = str(self.rollout.generation)
        if self.rollout.workload is not None:
            status["workloadObservedGeneration"] = str(self.rollout.workload["metadata"]["generation"])
        status["phase"], message = phase_of(self.rollout, status)
        status.pop("message", None)
        if message:
            status["message"] = message
        self.rollout.read(self.world.report(self.rollout.body, tidy(status)))


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
        if key == "canary":
            kept[key] = tidy(part)
        elif part or key == "currentStepIndex":
            kept[key] = part
    return kept


def base_status(r: Reconciliation) -> Json:
    """Counts and hashes; what is not in it is gone from the status."""
    old, status = r.rollout.status, r.status
    status["stableRS"] = r.rollout.stable_hash
    status["currentPodHash"] = r.new.hash if r.new is not None else r.rollout.pod_hash
    status["replicas"] = sum(rs.actual for rs in r.all)
    status["updatedReplicas"] = r.new.actual if r.new is not None else 0
    status["readyReplicas"] = sum(rs.ready for rs in r.all)
    status["conditions"] = [dict(one) for one in old.get("conditions", ()) if one["type"] != conditions.INVALID_SPEC]
    status["promoteFull"] = r.rollout.promoting_fully and status["currentPodHash"] != status["stableRS"]
    return status


def promote(r: Reconciliation, status: Json) -> None:
    """The current version is the stable one from now on."""
    r.pauses.clear()
    r.pauses.unabort()
    status.pop("promoteFull", None)
    if r.rollout.steps:
        status["currentStepIndex"] = len(r.rollout.steps)
    status["stableRS"] = status["currentPodHash"]


def with_conditions(r: Reconciliation, status: Json) -> Json:
    """Progressing as it is with this status: nobody reads what else upstream says.

    The deadline counts from the last pause or version, where upstream's counts from any progress. A version that is
    warm is no lack of it (`isWaitingForReplicaSetScaleDown`).
    """
    last = conditions.condition_of(status, conditions.PROGRESSING)
    name = r.new.name if r.new is not None else ""
    paused = bool(r.rollout.status.get("pauseConditions")) or r.rollout.paused
    if r.pauses.aborted:
        text = f"Rollout aborted update to revision {r.rollout.revision}"
        set_condition(status, r.now, Condition(conditions.PROGRESSING, "False", conditions.ABORTED, text))
    elif conditions.healthy(r.rollout, status) and not paused:
        text = f'ReplicaSet "{name}" has successfully progressed.'
        set_condition(status, r.now, Condition(conditions.PROGRESSING, "True", conditions.NEW_AVAILABLE, text))
    elif not paused and (last is None or last["reason"] != conditions.TIMED_OUT):
        text = f'ReplicaSet "{name}" is progressing.'
        set_condition(status, r.now, Condition(conditions.PROGRESSING, "True", "ReplicaSetUpdated", text))
        since = moment_of(status["conditions"][-1]["lastUpdateTime"])
        until = since + timedelta(seconds=r.rollout.spec.get("progressDeadlineSeconds", 600))
        if until > r.now:
            r.world.wake(until)
        if until > r.now or any(rs.scale_down_at for rs in r.others):
            return status
        text = f'ReplicaSet "{name}" has timed out progressing.'
        set_condition(status, r.now, Condition(conditions.PROGRESSING, "False", conditions.TIMED_OUT, text))
    return status


def reset(r: Reconciliation, status: Json) -> None:
    """A new update begins: no pause, no abort, no full promotion, step 0."""
    r.pauses.clear()
    r.pauses.unabort()
    status.pop("promoteFull", None)
    status.pop("currentStepIndex", None)
    if r.rollout.steps:
        status["currentStepIndex"] = 0


def within_window(r: Reconciliation) -> bool:
    """The desired version is older than the stable, with fewer than `rollbackWindow.revisions` between them.

    Age is when the replica set was made: a version that came back once is as old as ever.
    """
    revisions = (r.rollout.spec.get("rollbackWindow") or {}).get("revisions", 0)
    if r.new is None or r.stable is None or not revisions or r.new.created >= r.stable.created:
        return False
    return sum(r.new.created < rs.created < r.stable.created for rs in r.all) < int(revisions)


def metadata_of_role(r: Reconciliation, *, stable: bool) -> Json | None:
    return r.rollout.strategy.get("stableMetadata" if stable else "canaryMetadata")


def inject(body: Json, desired: Json | None) -> bool:
    """Put the role's metadata into a replica set's template instead of what was injected before, and remember it."""
    old = ReplicaSet(body).injected
    changed = relabel(body["spec"]["template"].setdefault("metadata", {}), old, desired)
    if not changed:
        return False
    annotations = body["metadata"].setdefault("annotations", {})
    if desired is None:
        annotations.pop(EPHEMERAL_METADATA, None)
    else:
        annotations[EPHEMERAL_METADATA] = json.dumps(desired, sort_keys=True, separators=(",", ":"))
    return True


def relabel(metadata: Json, old: Json | None, desired: Json | None) -> bool:
    """`SyncEphemeralPodMetadata`."""
    parts = ("labels", "annotations")
    before = {part: metadata.get(part) for part in parts}
    for part in parts:
        gone = set((old or {}).get(part, {})) - set((desired or {}).get(part, {}))
        kept = {key: text for key, text in metadata.get(part, {}).items() if key not in gone}
        if kept or (desired or {}).get(part):
            metadata[part] = kept | (desired or {}).get(part, {})
    return {part: metadata.get(part) for part in parts} != before


def sync_metadata(r: Reconciliation) -> None:
    """Templates and pods carry the metadata of the role that they play now; those of no role carry none.

    Pods are looked at each time: the controller may have died between the template and them (argo-rollouts#4477).
    """
    steady = not r.rollout.stable_hash or (r.new is not None and r.rollout.stable_hash == r.new.hash)
    for rs in r.all:
        is_new = r.new is not None and rs.name == r.new.name
        is_stable = steady if is_new else r.stable is not None and rs.name == r.stable.name
        desired = metadata_of_role(r, stable=is_stable) if is_new or is_stable else None
        old = rs.injected
        if inject(rs.body, desired):
            rs.read(r.world.update(rs.body))
        elif not (desired and rs.replicas):
            continue
        for pod in r.world.owned(PODS, rs.body):
            if relabel(pod["metadata"], old, desired):
                r.world.update(pod)
