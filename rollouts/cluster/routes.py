"""The object that splits a region's users: an HTTPRoute of the Gateway API, or an Istio VirtualService. Pure.

Weights are the controller's, which sets them step by step; only the way back is ours too, so that users need not wait
for it. Mirroring is ours: Argo Rollouts' own `setMirrorRoute` does nothing through the Gateway API plugin and says that
it did (rollouts-plugin-trafficrouter-gatewayapi#32), and with Istio it removes what has no `match`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Protocol

from rollouts.kube.model import Resource
from rollouts.kube.resources import HTTP_ROUTES, VIRTUAL_SERVICES
from rollouts.manifests.conventions import SERVICE_PORT, USERS, canary_service, stable_service
from tidegate.core.model import Json


class RouteKind(Protocol):
    """One kind of such an object, for a delivery's name. Pure: manifests in, manifests out."""

    @property
    def resource(self) -> Resource:
        """What it is for the API server."""
        ...

    def weight(self, route: Json, name: str) -> int:
        """Percent of users whom it sends to the canary's Service."""
        ...

    def mirror(self, route: Json, name: str) -> int:
        """Percent of requests that it copies to the canary's Service."""
        ...

    def mirrored(self, route: Json, name: str, percent: int) -> Json:
        """The same route with that percent of requests copied, 0 for none; all else stays."""
        ...

    def weighted(self, route: Json, name: str, percent: int) -> Json:
        """The same route with that percent of users on the canary and the rest on the stable; all else stays."""
        ...


def canary_share(weights: Mapping[str, int], name: str) -> int:
    """The canary's percent of what both Services get."""
    stable, canary = (weights.get(service(name), 0) for service in (stable_service, canary_service))
    return round(100 * canary / (stable + canary)) if canary else 0


MIRROR = "RequestMirror"


class HttpRoutes:
    """A `RouteKind`."""

    resource = HTTP_ROUTES

    def weight(self, route: Json, name: str) -> int:
        # A weight that is missing is 1 (Gateway API, HTTPBackendRef).
        backends = _user_rule(route, name).get("backendRefs") or []
        return canary_share({ref["name"]: int(ref.get("weight", 1)) for ref in backends}, name)

    def mirror(self, route: Json, name: str) -> int:
        for found in _user_rule(route, name).get("filters") or []:
            if _is_ours(found, name):
                # Without a percent or a fraction every request is copied.
                return int(found["requestMirror"].get("percent", 100))
        return 0

    def mirrored(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        rule = _user_rule(changed, name)
        filters = [found for found in rule.pop("filters", None) or [] if not _is_ours(found, name)]
        if percent:
            filters.append(_mirror_filter(name, _port(rule, name), percent))
        if filters:
            rule["filters"] = filters
        return changed

    def weighted(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        weights = {stable_service(name): 100 - percent, canary_service(name): percent}
        for ref in _user_rule(changed, name).get("backendRefs") or []:
            ref["weight"] = weights.get(ref["name"], 0)
        return changed


def _user_rule(route: Json, name: str) -> Json:
    """The rule that sends users to the stable; empty when there is none, others are not ours."""
    rules: list[Json] = (route.get("spec") or {}).get("rules") or []
    for rule in rules:
        if stable_service(name) in [ref.get("name") for ref in rule.get("backendRefs") or []]:
            return rule
    return {}


def _is_ours(found: Json, name: str) -> bool:
    backend = (found.get("requestMirror") or {}).get("backendRef") or {}
    return found.get("type") == MIRROR and backend.get("name") == canary_service(name)


def _port(rule: Json, name: str) -> int:
    """At which the rule's users reach the canary."""
    refs = rule.get("backendRefs") or []
    return next((int(ref["port"]) for ref in refs if ref.get("name") == canary_service(name)), SERVICE_PORT)


def _mirror_filter(name: str, port: int, percent: int) -> Json:
    # `percent` is younger than the filter (Gateway API 1.3): said only where it is needed.
    some: Json = {} if percent == 100 else {"percent": percent}
    backend = {"name": canary_service(name), "port": port}
    return {"type": MIRROR, "requestMirror": {"backendRef": backend, **some}}


class VirtualServices:
    """A `RouteKind`."""

    resource = VIRTUAL_SERVICES

    def weight(self, route: Json, name: str) -> int:
        targets = _user_route(route).get("route") or []
        return canary_share({_service(each.get("destination")): int(each.get("weight") or 0) for each in targets}, name)

    def mirror(self, route: Json, name: str) -> int:
        users = _user_route(route)
        if _service(users.get("mirror")) != canary_service(name):
            return 0
        # Without a percentage every request is copied (Istio, HTTPRoute.mirror_percentage).
        return round(float((users.get("mirrorPercentage") or {}).get("value", 100)))

    def mirrored(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        users = _user_route(changed)
        for part in ("mirror", "mirrorPercentage"):
            users.pop(part, None)
        if percent:
            users["mirror"] = {"host": canary_service(name), "port": {"number": SERVICE_PORT}}
            users["mirrorPercentage"] = {"value": percent}
        return changed

    def weighted(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        weights = {stable_service(name): 100 - percent, canary_service(name): percent}
        for target in _user_route(changed).get("route") or []:
            target["weight"] = weights.get(_service(target.get("destination")), 0)
        return changed


def _user_route(route: Json) -> Json:
    """The route for users; empty when there is none, others are not ours."""
    routes: list[Json] = (route.get("spec") or {}).get("http") or []
    return next((each for each in routes if each.get("name") == USERS), {})


def _service(destination: Json | None) -> str:
    """The Service's name; Istio takes a short name for one of its own namespace."""
    return str((destination or {}).get("host", "")).partition(".")[0]
