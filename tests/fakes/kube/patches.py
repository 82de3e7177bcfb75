"""Merge patch (RFC 7386) and JSON patch (RFC 6902), over JSON as the API server reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fakes.kube.copying import copied
from fakes.kube.refusal import Refusal

Json = dict[str, Any]


def merged(target: Any, patch: Any) -> Any:
    """`target` with an RFC 7386 patch: null removes a key, a list replaces the whole list."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patched(target: Json, operations: Iterable[Json]) -> Any:
    """`target` with RFC 6902 operations.

    Raises:
        Refusal: an operation does not fit, or its test does not hold: 422, as the API server's patch handler.
    """
    result: Any = copied(target)
    for operation in operations:
        result = _apply(result, operation)
    return result


def _apply(document: Any, operation: Json) -> Any:
    verb, path = operation.get("op"), _pointer(operation.get("path", ""))
    if verb in ("move", "copy"):
        source = _pointer(operation.get("from", ""))
        value = copied(_look(document, source))
        if verb == "move":
            document = _removed(document, source)
        return _added(document, path, value)
    if verb == "test":
        if _look(document, path) != operation.get("value"):
            raise _unfit(f"testing value {operation['path']} failed")
        return document
    if verb == "remove":
        return _removed(document, path)
    if verb == "replace":
        _look(document, path)
        return _added(_removed(document, path) if path else document, path, copied(operation.get("value")))
    if verb == "add":
        return _added(document, path, copied(operation.get("value")))
    raise Refusal(400, "BadRequest", f"Unexpected kind: {verb}")


def _pointer(path: str) -> list[str]:
    """RFC 6901: `~1` is a slash, `~0` a tilde."""
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _step(node: Any, key: str) -> Any:
    if isinstance(node, dict) and key in node:
        return node[key]
    if isinstance(node, list) and key.isdigit() and int(key) < len(node):
        return node[int(key)]
    raise _unfit(f"missing path: {key}")


def _look(document: Any, path: list[str]) -> Any:
    for key in path:
        document = _step(document, key)
    return document


def _removed(document: Any, path: list[str]) -> Any:
    parent = _look(document, path[:-1])
    _step(parent, path[-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, key = _look(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[key] = value
    elif isinstance(parent, list) and key == "-":
        parent.append(value)
    elif isinstance(parent, list) and key.isdigit() and int(key) <= len(parent):
        parent.insert(int(key), value)
    else:
        raise _unfit(f"missing path: {key}")
    return document


def _unfit(message: str) -> Refusal:
    return Refusal(422, "Invalid", f"the server rejected our request due to an error in our request: {message}")
