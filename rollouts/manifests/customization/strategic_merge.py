"""Kubernetes' strategic merge patch, as kubectl and Kustomize apply it. Pure.

Lists of a pod are merged by the key that Kubernetes' API gives them (`x-kubernetes-patch-merge-key`); all other lists
are replaced, as Kustomize does with custom resources. Items that are new come last. Of the directives, `$patch: delete`
and `$patch: replace` are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.core.model import Json, Loc

DIRECTIVE = "$patch"

MERGE_KEYS: Mapping[tuple[str, str], str] = {
    ("spec", "containers"): "name",
    ("spec", "initContainers"): "name",
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "hostAliases"): "ip",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "resourceClaims"): "name",
    ("spec", "ports"): "port",
    ("containers", "env"): "name",
    ("containers", "ports"): "containerPort",
    ("containers", "volumeMounts"): "mountPath",
    ("containers", "volumeDevices"): "devicePath",
    ("initContainers", "env"): "name",
    ("initContainers", "ports"): "containerPort",
    ("initContainers", "volumeMounts"): "mountPath",
    ("initContainers", "volumeDevices"): "devicePath",
}
"""By the key above the list's and the list's own; of a list below an item, the key above is that of the item's list.
From the Go types of `k8s.io/api/core/v1` (`patchMergeKey`)."""


class Unmergeable(ValueError):
    """A patch that means nothing; `where` is its place in the patch."""

    def __init__(self, where: Loc, found: str, expected: str) -> None:
        super().__init__(f"found {found}; expected {expected}")
        self.where, self.found, self.expected = where, found, expected


def merge_key(above: str, key: str) -> str | None:
    """By which items of a list are the same one; None where the list is one value."""
    return MERGE_KEYS.get((above, key))


def merged(target: Json, patch: Mapping[str, Any]) -> Json:
    """The object with the patch.

    Raises:
        Unmergeable: an item without the key of its list, or a directive that is not known.
    """
    return _mapping(target, patch, "", ())


def _mapping(target: Json, patch: Mapping[str, Any], above: str, where: Loc) -> Json:
    if _directive(patch, where) == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    changed = dict(target)
    for key, value in patch.items():
        here = (*where, key)
        if value is None or (isinstance(value, Mapping) and _directive(value, here) == "delete"):
            changed.pop(key, None)
        elif isinstance(value, Mapping):
            before = changed.get(key)
            changed[key] = _mapping(before if isinstance(before, dict) else {}, value, key, here)
        elif isinstance(value, list):
            name, before = merge_key(above, key), changed.get(key)
            items = before if isinstance(before, list) else []
            changed[key] = _list(items, value, key, name, here) if name else value
        else:
            changed[key] = value
    return changed


def _list(target: Sequence[Any], patch: Sequence[Any], above: str, name: str, where: Loc) -> list[Any]:
    for place, item in enumerate(patch):
        if not isinstance(item, Mapping) or (name not in item and item != {DIRECTIVE: "replace"}):
            raise Unmergeable((*where, place), "an item that says not which one it is", f"an item with `{name}`")
    kept = [] if any(item == {DIRECTIVE: "replace"} for item in patch) else list(target)
    for place, item in enumerate(patch):
        here = (*where, place)
        directive = _directive(item, here)
        known = next((index for index, each in enumerate(kept) if each.get(name) == item.get(name)), None)
        if name not in item:
            continue
        if directive == "delete":
            kept = [each for each in kept if each.get(name) != item[name]]
        elif known is None:
            kept.append(_mapping({}, item, above, here))
        else:
            kept[known] = _mapping(kept[known], item, above, here)
    return kept


def _directive(patch: Mapping[str, Any], where: Loc) -> str | None:
    for key in patch:
        if key.startswith("$") and (key != DIRECTIVE or patch[key] not in {"delete", "replace"}):
            expected = "`$patch: delete`, `$patch: replace`, or a field"
            raise Unmergeable((*where, key), f"the directive {key}: {patch[key]}", expected)
    said = patch.get(DIRECTIVE)
    return str(said) if said else None
