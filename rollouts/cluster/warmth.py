"""How many older ReplicaSets keep their engines, so that a version that was taken back displaces no warm one. Pure.

`scaleDownDelayRevisionLimit` counts whatever has engines and a deadline, the newest first (argo-rollouts,
`scaleDownOldReplicaSetsForCanary` in rollout/canary.go, `scaleDownDelayHelper` in rollout/replicaset.go). A version
that was aborted is newer than those that are kept warm, and holds its engines for `abortScaleDownDelaySeconds` only.
So the limit makes room for as many as are up whenever the Rollout is written. It is what the spec says again with the
next promotion after they are gone.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta

from rollouts.cluster.place import Place
from rollouts.cluster.seen import Seen
from rollouts.kube.model import Json, PatchKind, Request

LIMIT = "scaleDownDelayRevisionLimit"


def limit_of(place: Place, seen: Seen, *, leaving: bool) -> int | None:
    """The limit that keeps all warm versions; None where none are kept.

    Args:
        place: says how many the spec wants.
        seen: the region before it is written.
        leaving: whether the version on trial is about to be among the older ones.
    """
    if place.warm_versions is None:
        return None
    soon = seen.at + timedelta(seconds=place.after_abort_seconds)
    going = [
        each
        for each in seen.revisions
        if each.wanted and each not in (seen.stable, seen.trial) and each.ends is not None and each.ends <= soon
    ]
    return place.warm_versions + len(going) + (1 if leaving and seen.trial and seen.trial.wanted else 0)


def with_limit(rollout: Json, limit: int | None) -> Json:
    """The same Rollout with that limit."""
    changed = deepcopy(rollout)
    if limit is not None:
        changed["spec"]["strategy"][_strategy(rollout)][LIMIT] = limit
    return changed


def limited(request: Request, rollout: Json, limit: int | None) -> Request:
    """The same JSON patch of that Rollout, which sets the limit too."""
    if limit is None or request.patch is not PatchKind.JSON or not isinstance(request.body, list):
        return request
    operation = {"op": "add", "path": f"/spec/strategy/{_strategy(rollout)}/{LIMIT}", "value": limit}
    return request.model_copy(update={"body": [*request.body, operation]})


def as_patch(rollout: Json, limit: int | None) -> Json:
    """The limit as a part of a merge patch; empty when it is that already, or none is set."""
    kind = _strategy(rollout)
    if limit is None or rollout["spec"]["strategy"][kind].get(LIMIT) == limit:
        return {}
    return {"spec": {"strategy": {kind: {LIMIT: limit}}}}


def _strategy(rollout: Json) -> str:
    return "blueGreen" if rollout["spec"]["strategy"].get("blueGreen") is not None else "canary"
