"""What a request asks for, read from its method and path (`k8s.io/apiserver`'s `RequestInfo`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True)
class Asked:
    """One HTTP request, whichever way it came."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""


@dataclass(frozen=True)
class Call:
    """What access rules and faults are about: a verb on a resource."""

    verb: str
    """get, list, watch, create, update, patch, delete, deletecollection; lower-case method where it is no resource."""
    group: str = ""
    version: str = ""
    plural: str = ""
    """Empty for a path that is no resource, such as `/version`."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    @property
    def writes(self) -> bool:
        return self.verb in ("create", "update", "patch", "delete")


def call_of(asked: Asked) -> Call:
    """`/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUB]]`, or `/api/v1/…` for the core group."""
    parts = [unquote(part) for part in asked.path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Call(verb=asked.method.lower(), path=asked.path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = rest[0], rest[1] if len(rest) > 1 else "", "/".join(rest[2:])
    return Call(_verb(asked, name), group, version, plural, namespace, name, subresource, asked.path)


def _verb(asked: Asked, name: str) -> str:
    if asked.method == "DELETE":
        return "delete" if name else "deletecollection"
    if asked.method == "GET":
        if asked.query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if name else "list"
    return _VERBS.get(asked.method, asked.method.lower())
