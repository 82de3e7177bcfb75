"""Merges our pod template onto one of theirs, as Kubernetes merges by its strategic merge. Pure.

Lists of a pod are merged by the key that Kubernetes' API gives them (`x-kubernetes-patch-merge-key`); all other lists
are replaced. Items that are new come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.core.model import Json

MERGE_KEYS: Mapping[tuple[str, str], str] = {
    ("spec", "containers"): "name",
    ("spec", "initContainers"): "name",
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("containers", "env"): "name",
    ("containers", "ports"): "containerPort",
    ("containers", "volumeMounts"): "mountPath",
    ("initContainers", "env"): "name",
    ("initContainers", "volumeMounts"): "mountPath",
}
"""By the key above the list's and the list's own; of a list below an item, the key above is that of the item's list.
From the Go types of `k8s.io/api/core/v1` (`patchMergeKey`), as far as templates of ours have them."""


def merged(theirs: Json, ours: Json, above: str = "") -> Json:
    """Theirs with ours in it; every item of a list of ours that is merged has its key."""
    changed = dict(theirs)
    for key, value in ours.items():
        before = changed.get(key)
        if isinstance(value, Mapping):
            changed[key] = merged(before if isinstance(before, dict) else {}, dict(value), key)
        elif isinstance(value, list) and (name := MERGE_KEYS.get((above, key))):
            changed[key] = _list(before if isinstance(before, list) else [], value, key, name)
        else:
            changed[key] = value
    return changed


def _list(theirs: Sequence[Any], ours: Sequence[Json], above: str, name: str) -> list[Any]:
    kept = list(theirs)
    for item in ours:
        known = next((index for index, each in enumerate(kept) if each.get(name) == item[name]), None)
        if known is None:
            kept.append(item)
        else:
            kept[known] = merged(kept[known], item, above)
    return kept
