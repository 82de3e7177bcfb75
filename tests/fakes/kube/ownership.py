"""Who wrote which field (Kubernetes, "Server-Side Apply"), as far as tidegate reads it in `metadata.managedFields`.

Owned are leaves; a list is one, whatever the kind's schema says of its items. What else the API server decides by
schemas (items of lists with keys, sets) is asked of a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fakes.kube.refusal import Refusal
from fakes.kube.store import copied

from rollouts.kube.resources import Resource
from tidegate.core.model import Json

Path = tuple[str, ...]
Owners = dict[tuple[str, str, str], tuple[str, set[Path]]]
"""By manager, operation (Apply and Update are two owners, though one name) and subresource: since when, and what."""

SELECTORS = ("selector", "nodeSelector", "podSelector", "namespaceSelector", "labelSelector")
"""Maps that are one value: a Service's selector, which an apply replaces whole, and every LabelSelector."""


def leaves(body: Json) -> dict[Path, Any]:
    """Every owned path of an object with its value; identity, versions and times are nobody's."""
    metadata = {key: body.get("metadata", {}).get(key) for key in ("labels", "annotations", "ownerReferences")}
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return dict(_walk(rest | {"metadata": {key: value for key, value in metadata.items() if value}}, ()))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value and not _is_one_value(path):
        for key, one in value.items():
            yield from _walk(one, (*path, f"f:{key}"))
    elif path and path != ("f:metadata",):
        yield path, value


def _is_one_value(path: Path) -> bool:
    return bool(path) and path[0] == "f:spec" and path[-1].removeprefix("f:") in SELECTORS


def updated(
    kind: Resource, before: Json | None, after: Json, *, manager: str, subresource: str, now: str
) -> list[Json]:
    """Managed fields after any other write: the writer owns, alone, what it changed (`FieldManager.Update`)."""
    was, is_now = leaves(before or {}), leaves(after)
    changed = {path for path, value in is_now.items() if path not in was or was[path] != value}
    me, owners = (manager, "Update", subresource), _read(before or {})
    lost = changed | (was.keys() - is_now.keys())
    owners = {key: (time, fields - lost) for key, (time, fields) in owners.items()}
    if changed:
        owners[me] = now, changed | (owners[me][1] if me in owners else set())
    return _written(kind, owners)


def applied(kind: Resource, live: Json, config: Json, *, manager: str, subresource: str, force: bool, now: str) -> Json:
    """The live object with what a manager applies; what it applied before and applies no more goes, if nobody else's.

    Raises:
        Refusal: another manager owns a field with another value, and this one does not force (409).
    """
    wanted, has, owners = leaves(config), leaves(live), _read(live)
    since, mine = owners.pop((manager, "Apply", subresource), (now, set()))
    contested = {path for path, value in wanted.items() if path in has and has[path] != value}
    conflicts = [
        (name, path) for (name, *_), (_, fields) in owners.items() for path in sorted(fields & contested) if not force
    ]
    if conflicts:
        said = "; ".join(
            f'conflict with "{name}": {"".join(f".{part[2:]}" for part in path)}' for name, path in conflicts
        )
        raise Refusal(409, "Conflict", f"Apply failed with {len(conflicts)} conflict(s): {said}")
    owners = {key: (time, fields - contested) for key, (time, fields) in owners.items()}
    result = copied(live)
    for path in mine - wanted.keys() - {path for _, fields in owners.values() for path in fields}:
        _remove(result, path)
    result = _merged(result, config, ())
    moved = leaves(result) != has or mine != wanted.keys()
    owners[manager, "Apply", subresource] = now if moved else since, set(wanted)
    result["metadata"]["managedFields"] = _written(kind, owners)
    return result


def _merged(live: Any, config: Any, path: Path) -> Any:
    if not (isinstance(live, dict) and isinstance(config, dict)) or _is_one_value(path):
        return copied(config)
    return live | {key: _merged(live.get(key), value, (*path, f"f:{key}")) for key, value in config.items()}


def _remove(body: Json, path: Path) -> None:
    """Take a path out, and maps that are empty then."""
    key, below = path[0][2:], path[1:]
    if below and isinstance(body.get(key), dict):
        _remove(body[key], below)
    if not (below and body.get(key)):
        body.pop(key, None)


def _read(body: Json) -> Owners:
    entries = body.get("metadata", {}).get("managedFields") or ()
    return {
        (each["manager"], each["operation"], each.get("subresource", "")): (
            each["time"],
            set(_paths(each["fieldsV1"], ())),
        )
        for each in entries
    }


def _paths(fields: Json, path: Path) -> Iterator[Path]:
    if not fields:
        yield path
    for key, below in fields.items():
        yield from _paths(below, (*path, key))


def _written(kind: Resource, owners: Owners) -> list[Json]:
    """As `metadata.managedFields`."""
    entries = []
    for (manager, operation, subresource), (time, owned) in owners.items():
        root: Json = {}
        for path in sorted(owned):
            node = root
            for element in path:
                node = node.setdefault(element, {})
        entry = {"manager": manager, "operation": operation, "apiVersion": kind.api_version, "time": time}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": root}
        if root:
            entries.append(entry | ({"subresource": subresource} if subresource else {}))
    return entries
