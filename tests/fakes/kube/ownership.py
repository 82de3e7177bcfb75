"""Who owns which field: server-side apply (Kubernetes, "Server-Side Apply") and what other writes do to ownership.

A field is named by a path (structured-merge-diff's, and `FieldsV1`): a tuple of `f:NAME` for a field, `k:{…}` for the
item of a list with keys, `v:…` for an element of a set. A list without keys is one value
(`x-kubernetes-list-type: atomic`), which all lists of custom resources are by default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from fakes.kube.refusal import Cause, Refusal, bad_request
from fakes.kube.store import Kind, copied

from tidegate.core.model import Json

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


_UNSET = object()


class Owners:
    """The managed fields of one object, to be read, changed and written back."""

    def __init__(self, kind: Kind, managed: Iterable[Json] = ()) -> None:
        self._kind = kind
        self._entries = [dict(entry) for entry in managed]
        self._fields = [from_fields(entry.get("fieldsV1") or {}) for entry in self._entries]
        self._as_read = tuple(self._fields)

    def written(self) -> list[Json]:
        """As `metadata.managedFields`."""
        return [
            # What nobody else's write has touched stands as it did: most of an object's fields, at most writes.
            entry if fields == before else entry | {"fieldsType": "FieldsV1", "fieldsV1": to_fields(fields)}
            for entry, fields, before in zip_longest(self._entries, self._fields, self._as_read)
            if fields
        ]

    def of(self, manager: str, operation: str, subresource: str = "") -> set[Path]:
        """What a manager owns by one operation: Apply and Update are two owners, though one name."""
        index = self._find(manager, operation, subresource)
        return set() if index is None else set(self._fields[index])

    def others(self, manager: str, subresource: str = "") -> list[tuple[str, set[Path]]]:
        """Everybody but the applier, each as conflicts name them."""
        mine = self._find(manager, "Apply", subresource)
        return [
            (_named(entry, self._kind), fields)
            for index, (entry, fields) in enumerate(zip(self._entries, self._fields, strict=True))
            if index != mine
        ]

    def take(self, manager: str, operation: str, subresource: str, fields: set[Path], now: str) -> None:
        """Make these all that the manager owns by this operation; the time moves when they differ."""
        index = self._find(manager, operation, subresource)
        if index is None:
            entry = {"manager": manager, "operation": operation, "apiVersion": self._kind.api_version, "time": now}
            self._entries.append(entry | ({"subresource": subresource} if subresource else {}))
            self._fields.append(set(fields))
        elif self._fields[index] != fields:
            self._entries[index]["time"] = now
            self._fields[index] = set(fields)

    def lose(self, fields: set[Path], *, but: tuple[str, str, str] | None = None) -> None:
        """Nobody, or nobody but one, owns these any more."""
        kept = None if but is None else self._find(*but)
        self._fields = [owned if index == kept else owned - fields for index, owned in enumerate(self._fields)]

    def touch(self, manager: str, operation: str, subresource: str, now: str) -> None:
        """The manager wrote something at this time."""
        index = self._find(manager, operation, subresource)
        if index is not None:
            self._entries[index]["time"] = now

    def _find(self, manager: str, operation: str, subresource: str) -> int | None:
        wanted = (manager, operation, subresource)
        for index, entry in enumerate(self._entries):
            if (entry["manager"], entry["operation"], entry.get("subresource", "")) == wanted:
                return index
        return None


def _named(entry: Json, kind: Kind) -> str:
    below = f' with subresource "{entry["subresource"]}"' if entry.get("subresource") else ""
    return f'"{entry["manager"]}"{below} using {entry.get("apiVersion", kind.api_version)}'


def updated(kind: Kind, before: Json | None, after: Json, *, manager: str, subresource: str, now: str) -> list[Json]:
    """Managed fields after any other write: the writer owns, alone, what it changed (`FieldManager.Update`)."""
    old, new = differing({} if before is None else before, after)
    was, is_now = leaves(old), leaves(new)
    changed = {path for path, value in is_now.items() if was.get(path, _UNSET) != value}
    gone = set(was) - set(is_now)
    managed: list[Json] = [] if before is None else before["metadata"].get("managedFields", [])
    if not changed and not gone:
        return managed
    owners = Owners(kind, managed)
    owners.lose(gone)
    if changed:
        me = (manager, "Update", subresource)
        owners.lose(changed, but=me)
        owners.take(*me, owners.of(*me) | changed, now)
        owners.touch(*me, now)
    return owners.written()


def applied(kind: Kind, live: Json, config: Json, *, manager: str, subresource: str, force: bool, now: str) -> Json:
    """The live object with what a manager applies; what it applied before and applies no more goes, if nobody else's.

    Raises:
        Refusal: another manager owns a field with another value, and this one does not force (409); or the
            configuration claims managed fields (400).
    """
    if config.get("metadata", {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    wanted, has = leaves(config), leaves(live)
    owners = Owners(kind, live["metadata"].get("managedFields", ()))
    _settle(owners, wanted, has, manager=manager, subresource=subresource, force=force)
    dropped = owners.of(manager, "Apply", subresource) - set(wanted)
    theirs = {path for _, fields in owners.others(manager, subresource) for path in fields}
    result: Json = _merged(live, config, ())
    for path in _to_remove(dropped, theirs | set(wanted)):
        _remove(result, path)
    result = _merged(result, config, ())  # an empty map or list that is wanted went with what was in it
    owners.take(manager, "Apply", subresource, set(wanted), now)
    if leaves(result) != has:
        owners.touch(manager, "Apply", subresource, now)
    result["metadata"]["managedFields"] = owners.written()
    return result


def _to_remove(dropped: set[Path], kept: set[Path]) -> list[Path]:
    """What nobody wants any more: nothing in which anybody wants a part, and never an item's key alone."""
    chosen: list[Path] = []
    for path in sorted(dropped - kept, key=lambda path: (len(path), path)):
        is_key = len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:])
        needed = any(other[: len(path)] == path for other in kept)
        if not (is_key or needed or any(path[: len(above)] == above for above in chosen)):
            chosen.append(path)
    return chosen


def _settle(owners: Owners, wanted: Leaves, has: Leaves, *, manager: str, subresource: str, force: bool) -> None:
    """Take contested fields over, or refuse. A field with the same value is owned together."""
    contested = {path for path, value in wanted.items() if path in has and has[path] != value}
    conflicts = [
        (name, path) for name, fields in owners.others(manager, subresource) for path in sorted(fields & contested)
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    owners.lose(contested, but=(manager, "Apply", subresource))


def _conflict(conflicts: list[tuple[str, Path]]) -> Refusal:
    """`NewApplyConflict`."""
    causes = tuple(Cause("FieldManagerConflict", f"conflict with {name}", written(path)) for name, path in conflicts)
    said = "; ".join(f"conflict with {name}: {written(path)}" for name, path in conflicts)
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    return Refusal(409, "Conflict", f"Apply failed with {count}: {said}", causes=causes)


def _merged(live: Any, config: Any, path: Path) -> Any:
    if isinstance(live, dict) and isinstance(config, dict) and not is_atomic(path):
        merged = dict(live)
        for key, value in config.items():
            merged[key] = _merged(live[key], value, (*path, f"f:{key}")) if key in live else copied(value)
        return merged
    if isinstance(live, list) and isinstance(config, list):
        here, new = item_paths(path, live), item_paths(path, config)
        if here is not None and new is not None:
            return _merged_items(dict(zip(here, live, strict=True)), dict(zip(new, config, strict=True)), path)
    return copied(config)


def _merged_items(live: dict[str, Any], config: dict[str, Any], path: Path) -> list[Any]:
    """Items that are there keep their place; new ones come after them."""
    both = {key: _merged(one, config[key], (*path, key)) if key in config else one for key, one in live.items()}
    return [*both.values(), *(copied(one) for key, one in config.items() if key not in live)]


def _remove(node: Any, path: Path) -> None:
    """Take a path out, and maps that are empty then."""
    element, *rest = path
    if element.startswith("f:"):
        key = element[2:]
        if not isinstance(node, dict) or key not in node:
            return
        if rest:
            _remove_below(node, key, tuple(rest))
        else:
            del node[key]


def _remove_below(node: Json, key: str, rest: Path) -> None:
    below = node[key]
    if isinstance(below, list):
        elements = item_paths((f"f:{key}",), below) or []
        for index, element in enumerate(elements):
            if element == rest[0] and rest[1:]:
                _remove(below[index], rest[1:])
            elif element == rest[0]:
                del below[index]
                break
    else:
        _remove(below, rest)
    if not below:
        del node[key]
