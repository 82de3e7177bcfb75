"""The labels and annotations that pods carry for the role they play, and lose with it.

Upstream: `rollout/ephemeralmetadata.go`, `utils/replicaset/canary.go` (`SyncReplicaSetEphemeralPodMetadata`). `undo`
of the kubectl plugin copies a replica set's template with what was injected into it: the template is then a new one.
"""

from __future__ import annotations

import copy
import json

from fakes.argo.objects import EPHEMERAL_METADATA, ReplicaSet
from fakes.argo.reconciliation import Reconciliation

from rollouts.kube.model import Json
from rollouts.kube.resources import PODS


def metadata_of_role(r: Reconciliation, *, stable: bool) -> Json | None:
    """`canaryMetadata` or `stableMetadata`; of a blue-green `previewMetadata` or `activeMetadata`."""
    names = (
        ("stableMetadata", "canaryMetadata") if r.rollout.canary is not None else ("activeMetadata", "previewMetadata")
    )
    return r.rollout.strategy.get(names[0] if stable else names[1])


def inject(body: Json, wished: Json | None) -> bool:
    """Put the role's metadata into a replica set's template instead of what was injected before, and remember it."""
    old = ReplicaSet(body).injected
    changed = relabel(body["spec"]["template"].setdefault("metadata", {}), old, wished)
    if not changed:
        return False
    annotations = body["metadata"].setdefault("annotations", {})
    if wished is None:
        annotations.pop(EPHEMERAL_METADATA, None)
    else:
        annotations[EPHEMERAL_METADATA] = json.dumps(wished, sort_keys=True, separators=(",", ":"))
    return True


def relabel(metadata: Json, old: Json | None, wished: Json | None) -> bool:
    """`SyncEphemeralPodMetadata`."""
    before = copy.deepcopy(metadata)
    for part in ("labels", "annotations"):
        gone = set((old or {}).get(part, {})) - set((wished or {}).get(part, {}))
        kept = {key: text for key, text in metadata.get(part, {}).items() if key not in gone}
        if kept or (wished or {}).get(part):
            metadata[part] = kept | (wished or {}).get(part, {})
    return metadata != before


def sync_metadata(r: Reconciliation) -> None:
    """Templates and pods carry the metadata of the role that they play now; those of no role carry none.

    Pods are looked at each time: the controller may have died between the template and them (argo-rollouts#4477).
    """
    steady = not r.rollout.stable_hash or (r.new is not None and r.rollout.stable_hash == r.new.hash)
    for rs in r.all:
        is_new = r.new is not None and rs.name == r.new.name
        is_stable = steady if is_new else r.stable is not None and rs.name == r.stable.name
        wished = metadata_of_role(r, stable=is_stable) if is_new or is_stable else None
        old = rs.injected
        if inject(rs.body, wished):
            rs.body = r.world.update(rs.body)
        elif not (wished and rs.replicas):
            continue
        for pod in r.world.index.owned(PODS, rs.body):
            if relabel(pod["metadata"], old, wished):
                r.world.update(pod)
