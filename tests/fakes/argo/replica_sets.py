"""Replica sets: how many pods each gets; made, scaled, kept warm, scaled down.

Upstream: `utils/replicaset/canary.go` (`CalculateReplicaCountsForTrafficRoutedCanary`,
`GetCurrentSetWeight`, `UseSetCanaryScale`, `AtDesiredReplicaCountsForCanary`),
`utils/replicaset/replicaset.go` (`NewRSNewReplicas`), `rollout/sync.go` (`syncReplicaSetRevision`,
`createDesiredReplicaSet`, `scaleReplicaSet`),
`rollout/replicaset.go` (deadlines), `rollout/canary.go` (`scaleDownOldReplicaSetsForCanary`).
"""

from __future__ import annotations

import copy
import math
from datetime import timedelta

from fakes.argo import conditions
from fakes.argo.objects import (
    HASH_LABEL,
    LAST_APPLIED,
    REVISION,
    SCALE_DOWN_AT,
    ReplicaSet,
    Rollout,
    annotate,
    reference_to,
    stamp,
)
from fakes.argo.reconciliation import Reconciliation, inject, metadata_of_role

from tidegate.core.model import Json


def current_set_weight(rollout: Rollout) -> int:
    """The last `setWeight` at or before the current step; 0 when aborted or before the first, 100 after the last."""
    if rollout.aborted:
        return 0
    if rollout.step is None:
        return 100
    return previous_set_weight(rollout, (rollout.step_index or 0) + 1)


def previous_set_weight(rollout: Rollout, before: int) -> int:
    """The last `setWeight` before step `before`; 0 without one."""
    return next((int(step["setWeight"]) for step in reversed(rollout.steps[:before]) if "setWeight" in step), 0)


def canary_scale(rollout: Rollout) -> Json | None:
    """The `setCanaryScale` in force. An abort ends it unless the canary is to stay up."""
    if rollout.step is None or (rollout.aborted and rollout.abort_scale_down_delay):
        return None
    passed = reversed(rollout.steps[: (rollout.step_index or 0) + 1])
    return next((step["setCanaryScale"] for step in passed if "setCanaryScale" in step), None)


def replicas_or_weight(rollout: Rollout) -> tuple[int | None, int]:
    """Pods that a `setCanaryScale` names, or else the weight that pods should follow (`GetCanaryReplicasOrWeight`)."""
    if rollout.promoting_fully or not rollout.stable_hash or rollout.fully_promoted:
        return None, 100
    scale = canary_scale(rollout)
    if scale is not None and "replicas" in scale:
        return int(scale["replicas"]), 0
    if scale is not None and "weight" in scale:
        return None, int(scale["weight"])
    return None, current_set_weight(rollout)


def canary_count(rollout: Rollout) -> int:
    """Pods of the canary; the stable stays whole."""
    named, weight = replicas_or_weight(rollout)
    if named is not None:
        return named
    count = math.ceil(weight * rollout.replicas / 100)
    return max(count, int(rollout.strategy.get("minPodsPerReplicaSet", 0))) if count else count


def at_desired_counts(rollout: Rollout, new: ReplicaSet | None, stable: ReplicaSet | None) -> bool:
    """Whether a step's pods are there: the canary's available, the stable's created."""
    canary = canary_count(rollout)
    if new is None or new.replicas != canary or new.available != canary:
        return False
    return stable is not None and rollout.replicas == stable.replicas == stable.actual


_NOT_COPIED = (LAST_APPLIED, REVISION)
"""Annotations of a Rollout that its replica sets do not get (`annotationsToSkip`)."""


def sync_revision(r: Reconciliation) -> None:
    """Give the new replica set the Rollout's annotations and the next revision, and the Rollout that revision.

    A version that comes back keeps its replica set, which then has the highest revision.
    """
    if r.new is None:
        return
    revision = max((rs.revision for rs in r.older), default=0) + 1
    desired = r.new.annotations | {key: text for key, text in r.rollout.annotations.items() if key not in _NOT_COPIED}
    if r.new.revision < revision:
        desired[REVISION] = str(revision)
    if desired != r.new.annotations:
        r.new.body["metadata"]["annotations"] = desired
        _write(r, r.new)
        return
    _take_revision(r, r.new.revision)


def create_new(r: Reconciliation) -> None:
    """A replica set without pods for the template as it is now, with the metadata of the role it will play."""
    if r.new is not None:
        return
    template = copy.deepcopy(r.rollout.template)
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[HASH_LABEL] = r.rollout.pod_hash
    revision = max((rs.revision for rs in r.all), default=0) + 1
    selector = copy.deepcopy(r.rollout.selector)
    selector.setdefault("matchLabels", {})[HASH_LABEL] = r.rollout.pod_hash
    annotations = {key: text for key, text in r.rollout.annotations.items() if key not in _NOT_COPIED}
    body: Json = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{r.rollout.name}-{r.rollout.pod_hash}",
            "namespace": r.rollout.namespace,
            "labels": dict(labels),
            "annotations": annotations | {REVISION: str(revision)},
            "ownerReferences": [reference_to(r.rollout.body)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }
    inject(body, metadata_of_role(r, stable=r.stable is None))
    r.new = ReplicaSet(r.world.create(body))
    r.all.append(r.new)
    _take_revision(r, revision)
    message = f'Created new replica set "{r.new.name}"'
    r.write_condition(conditions.PROGRESSING, "True", "NewReplicaSetCreated", message)


def scale(r: Reconciliation, rs: ReplicaSet, count: int) -> bool:
    """Whether its size changed. At 0 the deadline goes, unless an abort set it."""
    if rs.replicas == count:
        return False
    if count == 0 and not delays_on_abort(r):
        rs.annotations.pop(SCALE_DOWN_AT, None)
    rs.body["spec"]["replicas"] = count
    _write(r, rs)
    return True


def delays_on_abort(r: Reconciliation) -> bool:
    """`shouldDelayScaleDownOnAbort`: unless the canary is to stay."""
    return r.pauses.aborted and r.stable is not None and r.rollout.abort_scale_down_delay is not None


def remove_deadlines(r: Reconciliation) -> None:
    """New and stable are wanted again, whatever deadline they had (`removeScaleDownDeadlines`)."""
    for rs in (None if delays_on_abort(r) else r.new, r.stable):
        if rs is not None and SCALE_DOWN_AT in rs.annotations:
            del rs.annotations[SCALE_DOWN_AT]
            _write(r, rs)


def scale_new(r: Reconciliation, count: int) -> bool:
    """Scale the new one; an aborted one first waits for a whole stable, then for its deadline."""
    if r.new is None:
        return False
    delay = r.rollout.abort_scale_down_delay
    if delays_on_abort(r) and delay is not None and r.stable is not None:
        until = r.new.scale_down_at
        if until is None:
            if r.stable.available == r.rollout.replicas:
                _set_deadline(r, r.new, delay)
            return False
        if until > r.now:
            r.world.wake(until)
            return False
        count = 0
    return scale(r, r.new, count)


def scale_down_others_of_canary(r: Reconciliation) -> bool:
    """Old versions stay until their deadline, while pods enough serve."""
    others = [rs for rs in r.others if rs.replicas > 0]
    scaled = _drop_unhealthy(r, others)
    spare = sum(rs.available for rs in r.all) - r.rollout.replicas
    for rs in _newest_first(others):
        if spare <= 0:
            break
        if rs.replicas == 0 or is_referenced(r, rs):
            continue
        old = rs.replicas
        # Not one that another one overtook half-way.
        waits = r.rollout.fully_promoted or rs.scale_down_at is not None
        count = _keep_until_deadline(r, rs) if waits else 0
        if scale(r, rs, count):
            spare -= old - count
            scaled = True
    return scaled


def is_referenced(r: Reconciliation, rs: ReplicaSet) -> bool:
    """Something still sends requests to it (`isReplicaSetReferenced`)."""
    weights = r.rollout.weights or {}
    hashes = {r.rollout.stable_hash, r.rollout.current_hash}
    hashes |= {weights.get(arm, {}).get("podTemplateHash") for arm in ("canary", "stable")}
    if rs.hash in hashes:
        return True
    names = ("canaryService", "stableService")
    services = (r.rollout.strategy[name] for name in names if r.rollout.strategy.get(name))
    return any(selector_of(r.service(name)) == rs.hash for name in services)


def selector_of(service: Json | None) -> str:
    """The pod template hash that a Service selects; empty when it selects none."""
    return str(((service or {}).get("spec", {}).get("selector") or {}).get(HASH_LABEL, ""))


def _keep_until_deadline(r: Reconciliation, rs: ReplicaSet) -> int:
    """Its pods (`scaleDownDelayHelper`)."""
    until = rs.scale_down_at
    if until is None:
        _set_deadline(r, rs, r.rollout.scale_down_delay)
    elif until <= r.now:
        return 0
    else:
        r.world.wake(until)
    return rs.replicas


def _set_deadline(r: Reconciliation, rs: ReplicaSet, delay: timedelta) -> None:
    annotate(rs.body, **{SCALE_DOWN_AT: stamp(r.now + delay)})
    _write(r, rs)
    r.world.wake(r.now + delay)


def _drop_unhealthy(r: Reconciliation, others: list[ReplicaSet]) -> bool:
    """Pods of old versions that are not available go first (`cleanupUnhealthyReplicas`)."""
    return sum(scale(r, rs, rs.available) for rs in others if rs.available < rs.replicas) > 0


def _newest_first(replica_sets: list[ReplicaSet]) -> list[ReplicaSet]:
    return sorted(replica_sets, key=lambda rs: (rs.revision, rs.created), reverse=True)


def _take_revision(r: Reconciliation, revision: int) -> None:
    if r.rollout.revision == revision:
        return
    annotate(r.rollout.body, **{REVISION: str(revision)})
    r.rollout.read(r.world.update(r.rollout.body))


def _write(r: Reconciliation, rs: ReplicaSet) -> None:
    rs.read(r.world.update(rs.body))
