"""Values that a server fills in where a writer says nothing ("Custom Resources: Defaulting"; for built-in kinds, the
defaults of their Go types). As far as tidegate's own objects meet them: reading back is not what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fakes.kube.kinds import Kind

Json = dict[str, Any]


def fill(kind: Kind, body: Json) -> None:
    """Fill in, in place."""
    rule = _RULES.get(kind.key)
    if rule is not None and isinstance(body.get("spec"), dict):
        rule(body["spec"])


def _route(spec: Json) -> None:
    """gateway-api config/crd: `default` of HTTPRoute."""
    for parent in spec.get("parentRefs", ()):
        parent.setdefault("group", "gateway.networking.k8s.io")
        parent.setdefault("kind", "Gateway")
    for rule in spec.setdefault("rules", [{}]):
        for match in rule.setdefault("matches", [{}]):
            path = match.setdefault("path", {})
            path.setdefault("type", "PathPrefix")
            path.setdefault("value", "/")
            for header in match.get("headers", ()):
                header.setdefault("type", "Exact")
        for backend in rule.get("backendRefs", ()):
            _backend(backend)
            backend.setdefault("weight", 1)
        for one in rule.get("filters", ()):
            if "requestMirror" in one:
                _backend(one["requestMirror"].setdefault("backendRef", {}))


def _backend(backend: Json) -> None:
    backend.setdefault("group", "")
    backend.setdefault("kind", "Service")


def _service(spec: Json) -> None:
    """`SetDefaults_Service`; the cluster IP that the allocator gives is left out."""
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _pods(spec: Json) -> None:
    """The one default in the Rollout's CustomResourceDefinition: a port's protocol, as it is a key of the list."""
    pod = (spec.get("template") or {}).get("spec") or {}
    for container in (*pod.get("containers", ()), *pod.get("initContainers", ())):
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _deployment(spec: Json) -> None:
    spec.setdefault("replicas", 1)
    _pods(spec)


_RULES: Mapping[tuple[str, str], Callable[[Json], None]] = {
    ("gateway.networking.k8s.io", "httproutes"): _route,
    ("", "services"): _service,
    ("argoproj.io", "rollouts"): _pods,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): _deployment,
}
