"""What a server says about itself: its version, its health, its groups and resources ("Discovery API")."""

from __future__ import annotations

from typing import Any

from fakes.kube.call import Asked
from fakes.kube.cluster import FakeCluster
from fakes.kube.refusal import no_such_path

Json = dict[str, Any]

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def document(cluster: FakeCluster, asked: Asked) -> Json:
    """The document at a path that is no resource.

    Raises:
        Refusal: there is none (404).
    """
    parts = asked.path.strip("/").split("/")
    if asked.path == "/version":
        major, minor, *_ = cluster.git_version.removeprefix("v").split(".")
        return {"major": major, "minor": minor, "gitVersion": cluster.git_version, "platform": "linux/amd64"}
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if parts == ["apis"]:
        groups = sorted({kind.group for kind in cluster.kinds if kind.group})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(cluster, name) for name in groups]}
    if parts[0] == "apis" and len(parts) == 2 and any(kind.group == parts[1] for kind in cluster.kinds):
        return {"kind": "APIGroup", "apiVersion": "v1"} | _group(cluster, parts[1])
    wanted = "/".join(parts[1:])
    found = [kind for kind in cluster.kinds if kind.api_version == wanted]
    if parts[0] not in ("api", "apis") or not found:
        raise no_such_path()
    resources: list[Json] = []
    for kind in found:
        one: Json = {"name": kind.plural, "singularName": kind.kind.lower(), "namespaced": kind.namespaced}
        resources.append(one | {"kind": kind.kind, "verbs": _VERBS})
        if kind.status:
            status = one | {"name": f"{kind.plural}/status", "kind": kind.kind, "verbs": ["get", "patch", "update"]}
            resources.append(status)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": wanted, "resources": resources}


def _group(cluster: FakeCluster, name: str) -> Json:
    versions = sorted({kind.version for kind in cluster.kinds if kind.group == name}, reverse=True)
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}
