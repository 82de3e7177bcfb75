"""The revisions of a Rollout, as its ReplicaSets keep them (`cmd/undo/undo.go`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy

from rollouts.argo.model import POD_TEMPLATE_HASH, Rollout, revision_of
from rollouts.errors import NotPossible
from rollouts.kube.model import Json

INJECTED = "rollout.argoproj.io/ephemeral-metadata"
"""Annotation of a ReplicaSet: what the controller put into its template, such as the role."""


def controlled_by(rollout: Json, things: Sequence[Json]) -> list[Json]:
    """Those that this very Rollout controls (`IsControlledBy`); one of the same name before it does not count."""
    uid = rollout["metadata"].get("uid")
    return [
        thing
        for thing in things
        if any(owner.get("controller") and owner.get("uid") == uid for owner in _owners(thing))
    ]


def hash_of(replica_set: Json) -> str:
    """The pod template hash that its pods carry."""
    return str((replica_set["metadata"].get("labels") or {}).get(POD_TEMPLATE_HASH, ""))


def target(rollout: Json, replica_sets: Sequence[Json], revision: int) -> Json:
    """The ReplicaSet of a revision; 0 is the second-highest, as in the plugin.

    Raises:
        NotPossible: when there is none.
    """
    own = sorted(controlled_by(rollout, replica_sets), key=revision_of, reverse=True)
    name = Rollout(rollout).name
    if revision > 0:
        found = next((item for item in own if revision_of(item) == revision), None)
        if found is None:
            known = ", ".join(str(revision_of(item)) for item in own) or "none"
            raise NotPossible(f"unable to find specified revision {revision} in history", hint=f"there are: {known}")
        return found
    if len(own) < 2:
        raise NotPossible(f'no revision found for rollout "{name}"')
    return own[1]


def of_hash(rollout: Json, replica_sets: Sequence[Json], pod_hash: str) -> Json | None:
    """The ReplicaSet of a pod template; None when it is gone (`revisionHistoryLimit`)."""
    return next((item for item in controlled_by(rollout, replica_sets) if hash_of(item) == pod_hash), None)


def template_to_restore(replica_set: Json) -> Json:
    """Its pod template without the label that the controller adds."""
    template: Json = deepcopy(replica_set["spec"]["template"])
    labels = template.get("metadata", {}).get("labels")
    if labels:
        labels.pop(POD_TEMPLATE_HASH, None)
    return template


def template_as_asked(replica_set: Json) -> Json:
    """The pod template that somebody once asked for, without anything that the controller put into it.

    Restored with a role in it, the template would be a new one with new pods: the role is the controller's, and
    `undo` of kubectl's plugin takes nothing but the hash away.
    """
    template = template_to_restore(replica_set)
    injected = json.loads((replica_set["metadata"].get("annotations") or {}).get(INJECTED) or "{}")
    metadata = template.get("metadata") or {}
    for part in ("labels", "annotations"):
        for key in injected.get(part) or {}:
            (metadata.get(part) or {}).pop(key, None)
    return template


def templates_match(now: object, wanted: object) -> bool:
    """Whether all that stands in `now` stands in `wanted` too (`Semantic.DeepDerivative`).

    What is empty in `now` does not count: the API server filled it into the ReplicaSet's. Quantities are compared as
    they are written, so that `1` and `1000m` differ; then a template is restored that was there already.
    """
    if now is None or now in ("", [], {}):
        return True
    if isinstance(now, dict) and isinstance(wanted, dict):
        without_hash = {key: value for key, value in now.items() if key != POD_TEMPLATE_HASH}
        return all(templates_match(value, wanted.get(key)) for key, value in without_hash.items())
    if isinstance(now, list) and isinstance(wanted, list):
        return len(now) <= len(wanted) and all(map(templates_match, now, wanted))
    return now == wanted


def _owners(thing: Json) -> list[Json]:
    return thing["metadata"].get("ownerReferences") or []
