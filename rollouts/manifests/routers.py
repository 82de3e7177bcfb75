"""The object that splits a region's users: an HTTPRoute of the Gateway API, or an Istio VirtualService. Pure.

One class has all that is known of a kind: how it is rendered, named by a Rollout, kept when it is applied again, read,
and written. Another one is a class here, a line in `ROUTERS`, its schema, and its fields in `patches`.

Weights are the controller's, which sets them step by step; only the way back is ours too, so that users need not wait
for it. Mirroring is ours: Argo Rollouts' own `setMirrorRoute` does nothing through the Gateway API plugin and says that
it did (rollouts-plugin-trafficrouter-gatewayapi#32), and with Istio it removes what has no `match`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rollouts.kube.model import Resource
from rollouts.kube.objects import at
from rollouts.kube.resources import HTTP_ROUTES, VIRTUAL_SERVICES
from rollouts.manifests.conventions import GATEWAY_PLUGIN, SERVICE_PORT, USERS, TrafficRouter
from tidegate.core.model import Json, Value


class Entrance(Protocol):
    """Where users come in: a Gateway."""

    @property
    def name(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def listener(self) -> str | None: ...


@dataclass(frozen=True)
class RouteKind(ABC):
    """One kind of such an object, for the Services of a delivery. Pure: manifests in, manifests out."""

    resource: ClassVar[Resource]
    """What it is for the API server."""
    rules: ClassVar[str]
    """The field, as a JSON pointer, in which its weights are."""
    stable: str
    """The Service of the stable's users."""
    canary: str

    @staticmethod
    @abstractmethod
    def rendered(entrance: Entrance, namespace: str, hosts: Sequence[str], rule: RouteRule) -> Json:
        """Its spec: that rule for users who come through the entrance under these hosts."""

    @staticmethod
    @abstractmethod
    def routing(name: str, namespace: str) -> Json:
        """The `trafficRouting` of a Rollout that moves its weights."""

    @staticmethod
    @abstractmethod
    def named_in(routing: Json) -> Iterator[str]:
        """The objects of this kind that somebody's `trafficRouting` names."""

    @staticmethod
    @abstractmethod
    def kept(wanted: Json, live: Json) -> Json:
        """Its spec with what is not ours to say as the cluster has it: weights, and copies of requests."""

    @abstractmethod
    def weight(self, route: Json) -> int:
        """Percent of users whom it sends to the canary's Service."""

    @abstractmethod
    def mirror(self, route: Json) -> int:
        """Percent of requests that it copies to the canary's Service."""

    @abstractmethod
    def mirrored(self, route: Json, percent: int) -> Json:
        """The same route with that percent of requests copied, 0 for none; all else stays."""

    @abstractmethod
    def weighted(self, route: Json, percent: int) -> Json:
        """The same route with that percent of users on the canary and the rest on the stable; all else stays."""

    def _share(self, weights: Mapping[str, int]) -> int:
        """The canary's percent of what both get."""
        stable, canary = weights.get(self.stable, 0), weights.get(self.canary, 0)
        return round(100 * canary / (stable + canary)) if canary else 0

    def _split(self, percent: int) -> Mapping[str, int]:
        """Weights by which the canary has that percent."""
        return {self.stable: 100 - percent, self.canary: percent}


class RouteRule(Value):
    """What is done with users' requests."""

    path: str
    """As a prefix, in whole parts."""
    exact: tuple[str, ...]
    """Paths besides it."""
    timeout: str
    shares: Mapping[str, int]
    """Percent by Service."""


MIRROR = "RequestMirror"
_COPIES = ("mirror", "mirrorPercentage")


def _weighed(target: Json, weights: Mapping[str, int | None], name: str) -> Json:
    weight = weights.get(name)
    return target if weight is None else {**target, "weight": weight}


class HttpRoutes(RouteKind):
    """In every rule that sends users to the stable, as Argo Rollouts' plugin has it."""

    resource, rules = HTTP_ROUTES, "/spec/rules"

    @staticmethod
    def rendered(entrance: Entrance, namespace: str, hosts: Sequence[str], rule: RouteRule) -> Json:  # noqa: ARG004
        parent = {"name": entrance.name, "namespace": entrance.namespace, "sectionName": entrance.listener}
        matches = [
            {"path": {"type": "PathPrefix", "value": rule.path}},
            *({"path": {"type": "Exact", "value": path}} for path in rule.exact),
        ]
        backends = [{"name": name, "port": SERVICE_PORT, "weight": weight} for name, weight in rule.shares.items()]
        rules = [{"matches": matches, "timeouts": {"request": rule.timeout}, "backendRefs": backends}]
        refs = [{key: value for key, value in parent.items() if value}]
        return {"parentRefs": refs, "hostnames": list(hosts), "rules": rules}

    @staticmethod
    def routing(name: str, namespace: str) -> Json:
        return {"plugins": {GATEWAY_PLUGIN: {"httpRoute": name, "namespace": namespace}}}

    @staticmethod
    def named_in(routing: Json) -> Iterator[str]:
        for said in at(routing, "plugins", default={}).values():
            if isinstance(said, dict) and (name := said.get("httpRoute") or at(said, "httpRoutes", 0, "name")):
                yield str(name)

    @staticmethod
    def kept(wanted: Json, live: Json) -> Json:
        """Rules by their place: the Gateway API gives them no names that every version knows."""
        before = live.get("rules") or []
        rules = [
            HttpRoutes._kept(rule, before[place] if place < len(before) else {})
            for place, rule in enumerate(wanted["rules"])
        ]
        return {**wanted, "rules": rules}

    @staticmethod
    def _kept(wanted: Json, live: Json) -> Json:
        weights = {ref.get("name"): ref.get("weight") for ref in live.get("backendRefs") or []}
        copies = [each for each in live.get("filters") or [] if each.get("type") == MIRROR]
        filters = {"filters": [*wanted.get("filters", ()), *copies]} if copies else {}
        refs = [_weighed(ref, weights, ref["name"]) for ref in wanted["backendRefs"]]
        return {**wanted, **filters, "backendRefs": refs}

    def weight(self, route: Json) -> int:
        # Of several rules the one with most of them: whoever goes back must not miss one.
        return max(map(self._weight, self._users(route)), default=0)

    def mirror(self, route: Json) -> int:
        found = [each for rule in self._users(route) for each in rule.get("filters") or [] if self._is_ours(each)]
        # Without a percent or a fraction every request is copied.
        return max((int(each["requestMirror"].get("percent", 100)) for each in found), default=0)

    def mirrored(self, route: Json, percent: int) -> Json:
        changed = deepcopy(route)
        for rule in self._users(changed):
            filters = [found for found in rule.pop("filters", None) or [] if not self._is_ours(found)]
            if percent:
                refs = rule.get("backendRefs") or []
                port = next((int(ref["port"]) for ref in refs if ref.get("name") == self.canary), SERVICE_PORT)
                backend = {"name": self.canary, "port": port}
                # `percent` is younger than the filter (Gateway API 1.3): said only where it is needed.
                some: Json = {} if percent == 100 else {"percent": percent}
                filters.append({"type": MIRROR, "requestMirror": {"backendRef": backend, **some}})
            if filters:
                rule["filters"] = filters
        return changed

    def weighted(self, route: Json, percent: int) -> Json:
        changed, weights = deepcopy(route), self._split(percent)
        for rule in self._users(changed):
            for ref in rule["backendRefs"]:
                ref["weight"] = weights.get(ref["name"], 0)
        return changed

    def _weight(self, rule: Json) -> int:
        # A weight that is missing is 1 (Gateway API, HTTPBackendRef).
        return self._share({ref["name"]: int(ref.get("weight", 1)) for ref in rule["backendRefs"]})

    def _users(self, route: Json) -> list[Json]:
        """The rules that send users to stable and canary; others are not ours."""
        rules: list[Json] = (route.get("spec") or {}).get("rules") or []
        named = {self.stable, self.canary}
        return [each for each in rules if named <= {ref.get("name") for ref in each.get("backendRefs") or []}]

    def _is_ours(self, found: Json) -> bool:
        backend = (found.get("requestMirror") or {}).get("backendRef") or {}
        return found.get("type") == MIRROR and backend.get("name") == self.canary


class VirtualServices(RouteKind):
    """In the one route that has both Services."""

    resource, rules = VIRTUAL_SERVICES, "/spec/http"

    @staticmethod
    def rendered(entrance: Entrance, namespace: str, hosts: Sequence[str], rule: RouteRule) -> Json:
        http = {
            "name": USERS,
            # Istio's prefix is one of letters: without the slash it would let in `/v1x` too.
            "match": [{"uri": {"prefix": f"{rule.path}/"}}, *({"uri": {"exact": path}} for path in rule.exact)],
            "timeout": rule.timeout,
            "route": [
                {"destination": {"host": name, "port": {"number": SERVICE_PORT}}, "weight": weight}
                for name, weight in rule.shares.items()
            ],
        }
        named = f"{entrance.namespace or namespace}/{entrance.name}"
        return {"hosts": list(hosts), "gateways": [named], "http": [http]}

    @staticmethod
    def routing(name: str, namespace: str) -> Json:  # noqa: ARG004  # it looks in the Rollout's own
        return {"istio": {"virtualService": {"name": name, "routes": [USERS]}}}

    @staticmethod
    def named_in(routing: Json) -> Iterator[str]:
        if name := at(routing, "istio", "virtualService", "name"):
            yield str(name)

    @staticmethod
    def kept(wanted: Json, live: Json) -> Json:
        before = {route.get("name"): route for route in live.get("http") or []}
        return {
            **wanted,
            "http": [VirtualServices._kept(route, before.get(route["name"], {})) for route in wanted["http"]],
        }

    @staticmethod
    def _kept(wanted: Json, live: Json) -> Json:
        def host(target: Json) -> str:
            return str(at(target, "destination", "host", default=""))

        weights = {host(target): target.get("weight") for target in live.get("route") or []}
        copies = {key: live[key] for key in _COPIES if key in live}
        return {**wanted, **copies, "route": [_weighed(each, weights, host(each)) for each in wanted["route"]]}

    def weight(self, route: Json) -> int:
        targets = self._users(route).get("route") or []
        return self._share({_service(each.get("destination")): int(each.get("weight") or 0) for each in targets})

    def mirror(self, route: Json) -> int:
        users = self._users(route)
        if _service(users.get("mirror")) != self.canary:
            return 0
        # Without a percentage every request is copied (Istio, HTTPRoute.mirror_percentage).
        return round(float((users.get("mirrorPercentage") or {}).get("value", 100)))

    def mirrored(self, route: Json, percent: int) -> Json:
        changed = deepcopy(route)
        users = self._users(changed)
        for part in _COPIES:
            users.pop(part, None)
        if percent and users:
            users["mirror"] = {"host": self.canary, "port": {"number": SERVICE_PORT}}
            users["mirrorPercentage"] = {"value": percent}
        return changed

    def weighted(self, route: Json, percent: int) -> Json:
        changed, weights = deepcopy(route), self._split(percent)
        for target in self._users(changed).get("route") or []:
            target["weight"] = weights.get(_service(target.get("destination")), 0)
        return changed

    def _users(self, route: Json) -> Json:
        """The route that has both Services; empty when there is none, others are not ours."""
        routes: list[Json] = (route.get("spec") or {}).get("http") or []
        for each in routes:
            named = {_service(target.get("destination")) for target in each.get("route") or []}
            if {self.stable, self.canary} <= named:
                return each
        return {}


def _service(destination: Json | None) -> str:
    """The Service's name; Istio takes a short name for one of its own namespace."""
    return str((destination or {}).get("host", "")).partition(".")[0]


ROUTERS: Mapping[TrafficRouter, type[HttpRoutes] | type[VirtualServices]] = {
    TrafficRouter.GATEWAY_API: HttpRoutes,
    TrafficRouter.ISTIO: VirtualServices,
}
"""The kind of each, which is made with the Services of stable and canary."""
