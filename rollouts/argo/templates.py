"""Pod templates of a Rollout and its ReplicaSets: what an undo asks for again. Pure.

An undo finds them as `cmd/undo/undo.go` of argo-rollouts does.
"""

from __future__ import annotations

import json
from copy import deepcopy

from tidegate.core.model import Json
from tidegate.core.names import POD_TEMPLATE_HASH

INJECTED = "rollout.argoproj.io/ephemeral-metadata"
"""Annotation of a ReplicaSet: what the controller put into its template, such as the role."""


def original_template(replica_set: Json) -> Json:
    """The pod template that somebody once asked for, without anything that the controller put into it.

    Restored with a role in it, the template would be a new one with new pods: the role is the controller's, and
    `undo` of kubectl's plugin takes nothing but the hash away.
    """
    template: Json = deepcopy(replica_set["spec"]["template"])
    injected = json.loads((replica_set["metadata"].get("annotations") or {}).get(INJECTED) or "{}")
    metadata = template.get("metadata") or {}
    (metadata.get("labels") or {}).pop(POD_TEMPLATE_HASH, None)
    for part in ("labels", "annotations"):
        for key in injected.get(part) or {}:
            (metadata.get(part) or {}).pop(key, None)
    return template


def templates_match(now: object, desired: object) -> bool:
    """Whether all that stands in `now` stands in `desired` too (`Semantic.DeepDerivative`).

    What is empty in `now` does not count: the API server filled it into the ReplicaSet's. Quantities are compared as
    they are written, so that `1` and `1000m` differ; then a template is restored that was there already.
    """
    if now is None or now in ("", [], {}):
        return True
    if isinstance(now, dict) and isinstance(desired, dict):
        without_hash = {key: value for key, value in now.items() if key != POD_TEMPLATE_HASH}
        return all(templates_match(value, desired.get(key)) for key, value in without_hash.items())
    if isinstance(now, list) and isinstance(desired, list):
        return len(now) <= len(desired) and all(map(templates_match, now, desired))
    return now == desired
