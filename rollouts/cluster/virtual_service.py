"""An Istio VirtualService: the weights of the route for users, and the mirror on it. Pure."""

from __future__ import annotations

from copy import deepcopy

from rollouts.cluster.route import share
from rollouts.kube.model import Json
from rollouts.kube.resources import VIRTUAL_SERVICES
from rollouts.manifests.conventions import SERVICE_PORT, USERS, canary_service, stable_service


class VirtualServices:
    """A `RouteKind`."""

    resource = VIRTUAL_SERVICES

    def weight(self, route: Json, name: str) -> int:
        targets = _users(route).get("route") or []
        return share({_service(each.get("destination")): int(each.get("weight") or 0) for each in targets}, name)

    def mirror(self, route: Json, name: str) -> int:
        users = _users(route)
        if _service(users.get("mirror")) != canary_service(name):
            return 0
        # Without a percentage every request is copied (Istio, HTTPRoute.mirror_percentage).
        return round(float((users.get("mirrorPercentage") or {}).get("value", 100)))

    def mirrored(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        users = _users(changed)
        for part in ("mirror", "mirrorPercentage"):
            users.pop(part, None)
        if percent:
            users["mirror"] = {"host": canary_service(name), "port": {"number": SERVICE_PORT}}
            users["mirrorPercentage"] = {"value": percent}
        return changed

    def weighted(self, route: Json, name: str, percent: int) -> Json:
        changed = deepcopy(route)
        weights = {stable_service(name): 100 - percent, canary_service(name): percent}
        for target in _users(changed).get("route") or []:
            target["weight"] = weights.get(_service(target.get("destination")), 0)
        return changed


def _users(route: Json) -> Json:
    """The route for users; empty when there is none, others are not ours."""
    routes: list[Json] = (route.get("spec") or {}).get("http") or []
    return next((each for each in routes if each.get("name") == USERS), {})


def _service(destination: Json | None) -> str:
    """The Service's name; Istio takes a short name for one of its own namespace."""
    return str((destination or {}).get("host", "")).partition(".")[0]
