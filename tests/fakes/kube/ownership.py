"""Who owns which field: server-side apply (Kubernetes, "Server-Side Apply") and what other writes do to ownership."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fakes.kube.copying import copied
from fakes.kube.field_paths import (
    Leaves,
    Path,
    differing,
    from_fields,
    is_atomic,
    item_paths,
    leaves,
    to_fields,
    written,
)
from fakes.kube.kinds import Kind
from fakes.kube.refusal import Cause, Refusal, bad_request

Json = dict[str, Any]

_UNSET = object()


class Owners:
    """The managed fields of one object, to be read, changed and written back."""

    def __init__(self, kind: Kind, managed: Iterable[Json] = ()) -> None:
        self._kind = kind
        self._entries = [dict(entry) for entry in managed]
        self._fields = [from_fields(entry.get("fieldsV1") or {}) for entry in self._entries]

    def written(self) -> list[Json]:
        """As `metadata.managedFields`."""
        return [
            entry | {"fieldsType": "FieldsV1", "fieldsV1": to_fields(fields)}
            for entry, fields in zip(self._entries, self._fields, strict=True)
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
