"""Where things are in an object, as field managers own them (structured-merge-diff's paths and `FieldsV1`).

A path is a tuple of `f:NAME` for a field, `k:{…}` for the item of a list with keys, `v:…` for an element of a set.
A list without keys is one value (`x-kubernetes-list-type: atomic`), which all lists of custom resources are by default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]
Path = tuple[str, ...]
Leaves = dict[Path, Any]

_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
    "listeners": ("name",),
}
"""`x-kubernetes-list-map-keys` of the core types, wherever they are embedded, and of a Gateway."""

ATOMIC = ("selector", "nodeSelector", "podSelector", "namespaceSelector", "labelSelector")
"""Maps that are one value (`x-kubernetes-map-type: atomic`), wherever the core types and the custom ones embed them: a
Service's selector, which an apply replaces whole, and every LabelSelector."""

_SETS = ("finalizers",)
_IDENTITY = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"),
)
"""Metadata that nobody owns (`stripSet` of the API server's field manager)."""


def leaves(body: Json) -> Leaves:
    """Every owned path of an object with its value; an empty map, and a list's item itself, are paths too."""
    metadata = {key: value for key, value in body.get("metadata", {}).items() if key not in _IDENTITY}
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return dict(_walk(({"metadata": metadata} if metadata else {}) | rest, ()))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value and not is_atomic(path):
        for key, one in value.items():
            yield from _walk(one, (*path, f"f:{key}"))
    elif isinstance(value, list) and (keyed := item_paths(path, value)) is not None:
        for element, one in zip(keyed, value, strict=True):
            yield (*path, element), None if isinstance(one, dict) else one
            if isinstance(one, dict):
                yield from _walk(one, (*path, element))
    elif path:
        yield path, value


def is_atomic(path: Path) -> bool:
    """Whether a map there is one value, owned and replaced as a whole."""
    return bool(path) and path[0] == "f:spec" and path[-1].removeprefix("f:") in ATOMIC


def item_paths(path: Path, items: list[Any]) -> list[str] | None:
    """The last element of each item's path; None for a list that is one value."""
    name = path[-1].removeprefix("f:") if path else ""
    if name in _SETS:
        return ["v:" + json.dumps(one) for one in items]
    keys = _ports(items) if name == "ports" else _KEYS.get(name)
    if keys is None or not items or not all(isinstance(one, dict) and keys[0] in one for one in items):
        return None
    return ["k:" + _compact({key: one.get(key, _default(key)) for key in keys if _has(one, key)}) for one in items]


def _ports(items: list[Any]) -> tuple[str, ...] | None:
    """Of a container or of a Service; a container's port is known by number and protocol."""
    first = items[0] if items and isinstance(items[0], dict) else {}
    return next(((key, "protocol") for key in ("containerPort", "port") if key in first), None)


def _has(one: Json, key: str) -> bool:
    return key in one or _default(key) is not None


def _default(key: str) -> str | None:
    return "TCP" if key == "protocol" else None


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def differing(before: Json, after: Json, path: Path = ()) -> tuple[Json, Json]:
    """Both without the fields that are the same in both: what is left has all leaves that differ."""
    old: Json = {key: value for key, value in before.items() if key not in after}
    new: Json = {key: value for key, value in after.items() if key not in before}
    for key in before.keys() & after.keys():
        was, is_now, below = before[key], after[key], (*path, f"f:{key}")
        if was == is_now:
            continue
        if isinstance(was, dict) and isinstance(is_now, dict) and was and is_now and not is_atomic(below):
            was, is_now = differing(was, is_now, below)
            old |= {key: was} if was else {}
            new |= {key: is_now} if is_now else {}
        else:
            old[key], new[key] = was, is_now
    return old, new


def to_fields(paths: Iterable[Path]) -> Json:
    """As `fieldsV1`: nested, with `.` for a path that has others below it."""
    root: Json = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _tidy(root)


def _tidy(node: Json) -> Json:
    if list(node) == ["."]:
        return {}
    return {key: {} if key == "." else _tidy(below) for key, below in node.items()}


def from_fields(fields: Json) -> set[Path]:
    """The paths of a `fieldsV1`."""
    return set(_read(fields, ()))


def _read(node: Json, path: Path) -> Iterator[Path]:
    if not node and path:
        yield path
    for key, below in node.items():
        if key == ".":
            yield path
        else:
            yield from _read(below, (*path, key))


def written(path: Path) -> str:
    """As conflicts name it: `.spec.template.spec.containers[name="engine"].image`."""
    said = ""
    for element in path:
        sign, _, rest = element.partition(":")
        if sign == "f":
            said += f".{rest}"
        elif sign == "k":
            said += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items()) + "]"
        else:
            said += f"[={rest}]"
    return said
