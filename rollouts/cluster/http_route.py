"""An HTTPRoute of the Gateway API: the weights of the rule for users, and the RequestMirror filter on it. Pure."""

from __future__ import annotations

from copy import deepcopy

from rollouts.cluster.route import share
from rollouts.kube.model import Json
from rollouts.kube.resources import HTTP_ROUTES
from rollouts.manifests.conventions import SERVICE_PORT, canary_service, stable_service

MIRROR = "RequestMirror"


class HttpRoutes:
    """A `RouteKind`."""

    resource = HTTP_ROUTES

    def weight(self, route: Json, name: str) -> int:
        # A weight that is missing is 1 (Gateway API, HTTPBackendRef).
        backends = _users(route, name).get("backendRefs") or []
        return share({ref["name"]: int(ref.get("weight", 1)) for ref in backends}, name)

    def mirror(self, route: Json, name: str) -> int:
        for found in _users(route, name).get("filters") or []:
            if _is_ours(found, name):
                # Without a percent or a fraction every request is copied.
                return int(found["requestMirror"].get("percent", 100))
        return 0

    def mirrored(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        rule = _users(changed, name)
        filters = [found for found in rule.pop("filters", None) or [] if not _is_ours(found, name)]
        if percent:
            filters.append(_mirror(name, percent))
        if filters:
            rule["filters"] = filters
        return changed

    def weighted(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        weights = {stable_service(name): 100 - percent, canary_service(name): percent}
        for ref in _users(changed, name).get("backendRefs") or []:
            ref["weight"] = weights.get(ref["name"], 0)
        return changed


def _users(route: Json, name: str) -> Json:
    """The rule that sends users to the stable; empty when there is none, others are not ours."""
    rules: list[Json] = (route.get("spec") or {}).get("rules") or []
    for rule in rules:
        if stable_service(name) in [ref.get("name") for ref in rule.get("backendRefs") or []]:
            return rule
    return {}


def _is_ours(found: Json, name: str) -> bool:
    backend = (found.get("requestMirror") or {}).get("backendRef") or {}
    return found.get("type") == MIRROR and backend.get("name") == canary_service(name)


def _mirror(name: str, percent: int) -> Json:
    # `percent` is younger than the filter (Gateway API 1.3): said only where it is needed.
    some: Json = {} if percent == 100 else {"percent": percent}
    backend = {"name": canary_service(name), "port": SERVICE_PORT}
    return {"type": MIRROR, "requestMirror": {"backendRef": backend, **some}}
