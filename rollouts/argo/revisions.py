"""The revisions of a Rollout: its ReplicaSets, their pod templates, and the workload that may hold the template.

As `cmd/undo/undo.go` of argo-rollouts finds them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy

from rollouts.argo.model import POD_TEMPLATE_HASH, Rollout, hash_of, revision_of
from rollouts.errors import NotPossible
from rollouts.kube.model import Json
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import DEPLOYMENTS, POD_TEMPLATES, REPLICA_SETS

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


def target_revision(rollout: Json, replica_sets: Sequence[Json], revision: int) -> Json:
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


def replica_set_with_hash(rollout: Json, replica_sets: Sequence[Json], pod_hash: str) -> Json | None:
    """The ReplicaSet of a pod template; None when it is gone (`revisionHistoryLimit`)."""
    return next((item for item in controlled_by(rollout, replica_sets) if hash_of(item) == pod_hash), None)


def template_to_restore(replica_set: Json) -> Json:
    """Its pod template without the label that the controller adds."""
    template: Json = deepcopy(replica_set["spec"]["template"])
    labels = template.get("metadata", {}).get("labels")
    if labels:
        labels.pop(POD_TEMPLATE_HASH, None)
    return template


def original_template(replica_set: Json) -> Json:
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


def _owners(thing: Json) -> list[Json]:
    return thing["metadata"].get("ownerReferences") or []


REFERENCED = {"Deployment": DEPLOYMENTS, "ReplicaSet": REPLICA_SETS, "PodTemplate": POD_TEMPLATES}
"""What `spec.workloadRef` may name."""

OPERATORS = {
    "In": "{key} in ({values})",
    "NotIn": "{key} notin ({values})",
    "Exists": "{key}",
    "DoesNotExist": "!{key}",
}


async def workload_of(cluster: ClusterReader, rollout: Json) -> Json | None:
    """What `spec.workloadRef` names; None when the Rollout has a template of its own.

    Raises:
        NotPossible: when Argo Rollouts does not know such a reference either.
    """
    ref = Rollout(rollout).workload_ref
    if not ref:
        return None
    if ref.get("kind") not in REFERENCED:
        raise NotPossible(f"workloadRef to {ref.get('kind')}", hint=f"there are: {', '.join(REFERENCED)}")
    return await cluster.get(REFERENCED[ref["kind"]], ref["name"])


async def replica_sets_of(cluster: ClusterReader, rollout: Json, workload: Json | None = None) -> tuple[Json, ...]:
    """The ReplicaSets that its selector matches, no matter who controls them."""
    return (await cluster.list(REPLICA_SETS, labels=selector_of(rollout, workload))).items


def selector_of(rollout: Json, workload: Json | None = None) -> str:
    """The selector of its pods and ReplicaSets, as a query spells it (`LabelSelectorAsSelector`)."""
    selector = Rollout(rollout).spec.get("selector") or ((workload or {}).get("spec") or {}).get("selector") or {}
    labels = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    expressions = [
        OPERATORS[term["operator"]].format(key=term["key"], values=",".join(term.get("values") or []))
        for term in selector.get("matchExpressions") or []
    ]
    return ",".join([*labels, *expressions])


ALL = "*"
"""As a container's name: every container."""

KINDS = ("initContainers", "containers", "ephemeralContainers")


def containers_of(holder: Json) -> list[Json]:
    """Every container of the template that a Rollout, Deployment or ReplicaSet holds."""
    spec = holder["spec"]["template"].get("spec") or {}
    return [container for kind in KINDS for container in spec.get(kind) or []]


def with_image(holder: Json, container: str, image: str) -> Json:
    """The object with another image in every container of that name; nothing else is touched.

    Raises:
        NotPossible: when no container has that name.
    """
    changed = deepcopy(holder)
    meant = [found for found in containers_of(changed) if container in {ALL, found.get("name")}]
    if not meant:
        names = ", ".join(str(found.get("name")) for found in containers_of(changed))
        raise NotPossible(f'unable to find container named "{container}"', hint=f"there are: {names or 'none'}")
    for found in meant:
        found["image"] = image
    return changed
