"""The object that splits a region's users: an HTTPRoute of the Gateway API, or an Istio VirtualService. Pure.

One class has all that is known of a kind: how it is rendered, named by a Rollout, read, and written. Another one is a
class here, a line in `ROUTERS`, its schema, and its fields in `patches`.

Weights are the controller's, which sets them step by step; only the way back is ours too, so that users need not wait
for it. Mirroring is ours: Argo Rollouts' own `setMirrorRoute` does nothing through the Gateway API plugin and says that
it did (rollouts-plugin-trafficrouter-gatewayapi#32), and with Istio it removes what has no `match`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

from rollouts.kube.objects import at
from rollouts.kube.resources import HTTP_ROUTES, VIRTUAL_SERVICES, Resource
from rollouts.manifests.conventions import GATEWAY_PLUGIN, SERVICE_PORT, USERS, TrafficRouter
from tidegate.core.model import Json

API = "/v1"
"""Of vLLM: what users ask. As a prefix it means whole parts of a path."""


@dataclass(frozen=True)
class RouteKind(ABC):
    """One kind of such an object, for the Services of a delivery. Pure: manifests in, manifests out.

    Rules of users are those that send to both Services; others are not ours.
    """

    resource: ClassVar[Resource]
    """What it is for the API server."""
    rules: ClassVar[str]
    """The field, as a JSON pointer, in which its weights are."""
    unsaid: ClassVar[int]
    """The weight of a backend that says none."""
    stable: str
    """The Service of the stable's users."""
    canary: str

    @staticmethod
    @abstractmethod
    def rendered(
        parent: Mapping[str, str], namespace: str, hosts: Sequence[str], timeout: str, shares: Mapping[str, int]
    ) -> Json:
        """Its spec: users who come under these hosts through a gateway get the API alone, from Services by percent.

        That one is the `name` of `parent`, at the listener `sectionName` where one is meant, in its `namespace` or else
        in the given one, which is the object's own.
        """

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
    def targets(rule: Json) -> list[tuple[str, Json]]:
        """The backends of a rule by the names of their Services; each has its weight."""

    @abstractmethod
    def mirror(self, route: Json) -> int:
        """Percent of requests that it copies to the canary's Service."""

    @abstractmethod
    def mirrored(self, route: Json, percent: int) -> Json:
        """The same route with that percent of requests copied, 0 for none; all else stays."""

    def shares(self, route: Json) -> list[Mapping[str, int]]:
        """The weight of each Service, by rule."""
        return [self._weights(rule) for rule in at(route, *self.rules.split("/")[1:], default=[])]

    def weight(self, route: Json) -> int:
        """Percent of users whom it sends to the canary's Service."""
        both = [(each[self.stable], each[self.canary]) for each in map(self._weights, self._users(route))]
        # Of several rules the one with most of them: whoever goes back must not miss one.
        return max((round(100 * canary / (stable + canary)) for stable, canary in both if canary), default=0)

    def weighted(self, route: Json, percent: int) -> Json:
        """The same route with that percent of users on the canary and the rest on the stable; all else stays."""
        changed, weights = deepcopy(route), {self.stable: 100 - percent, self.canary: percent}
        for rule in self._users(changed):
            for name, target in self.targets(rule):
                target["weight"] = weights.get(name, 0)
        return changed

    def _weights(self, rule: Json) -> Mapping[str, int]:
        return {name: int(target.get("weight", self.unsaid)) for name, target in self.targets(rule)}

    def _users(self, route: Json) -> list[Json]:
        found: list[Json] = at(route, *self.rules.split("/")[1:], default=[])
        return [each for each in found if {self.stable, self.canary} <= {name for name, _ in self.targets(each)}]


MIRROR = "RequestMirror"


class HttpRoutes(RouteKind):
    """In every rule that sends users to the stable, as Argo Rollouts' plugin has it."""

    resource, rules, unsaid = HTTP_ROUTES, "/spec/rules", 1

    @staticmethod
    def rendered(
        parent: Mapping[str, str],
        namespace: str,  # noqa: ARG004
        hosts: Sequence[str],
        timeout: str,
        shares: Mapping[str, int],
    ) -> Json:
        matches = [{"path": {"type": "PathPrefix", "value": API}}]
        backends = [{"name": name, "port": SERVICE_PORT, "weight": weight} for name, weight in shares.items()]
        rules = [{"matches": matches, "timeouts": {"request": timeout}, "backendRefs": backends}]
        return {"parentRefs": [dict(parent)], "hostnames": list(hosts), "rules": rules}

    @staticmethod
    def routing(name: str, namespace: str) -> Json:
        return {"plugins": {GATEWAY_PLUGIN: {"httpRoute": name, "namespace": namespace}}}

    @staticmethod
    def named_in(routing: Json) -> Iterator[str]:
        for said in at(routing, "plugins", default={}).values():
            if isinstance(said, dict) and (name := said.get("httpRoute") or at(said, "httpRoutes", 0, "name")):
                yield str(name)

    @staticmethod
    def targets(rule: Json) -> list[tuple[str, Json]]:
        return [(str(ref.get("name")), ref) for ref in rule.get("backendRefs") or []]

    def mirror(self, route: Json) -> int:
        found = [each for rule in self._users(route) for each in rule.get("filters") or [] if self._is_ours(each)]
        # Without a percent or a fraction every request is copied.
        return max((int(each["requestMirror"].get("percent", 100)) for each in found), default=0)

    def mirrored(self, route: Json, percent: int) -> Json:
        changed = deepcopy(route)
        for rule in self._users(changed):
            filters = [found for found in rule.pop("filters", None) or [] if not self._is_ours(found)]
            if percent:
                port = next((int(ref["port"]) for name, ref in self.targets(rule) if name == self.canary), SERVICE_PORT)
                backend = {"name": self.canary, "port": port}
                # `percent` is younger than the filter (Gateway API 1.3): said only where it is needed.
                some: Json = {} if percent == 100 else {"percent": percent}
                filters.append({"type": MIRROR, "requestMirror": {"backendRef": backend, **some}})
            if filters:
                rule["filters"] = filters
        return changed

    def _is_ours(self, found: Json) -> bool:
        return found.get("type") == MIRROR and at(found, "requestMirror", "backendRef", "name") == self.canary


class VirtualServices(RouteKind):
    """In every route that has both Services; rendered is one."""

    resource, rules, unsaid = VIRTUAL_SERVICES, "/spec/http", 0

    @staticmethod
    def rendered(
        parent: Mapping[str, str], namespace: str, hosts: Sequence[str], timeout: str, shares: Mapping[str, int]
    ) -> Json:
        http = {
            "name": USERS,
            # Istio's prefix is one of letters: without the slash it would let in `/v1x` too.
            "match": [{"uri": {"prefix": f"{API}/"}}],
            "timeout": timeout,
            "route": [
                {"destination": {"host": name, "port": {"number": SERVICE_PORT}}, "weight": weight}
                for name, weight in shares.items()
            ],
        }
        named = f"{parent.get('namespace', namespace)}/{parent['name']}"
        return {"hosts": list(hosts), "gateways": [named], "http": [http]}

    @staticmethod
    def routing(name: str, namespace: str) -> Json:  # noqa: ARG004  # it looks in the Rollout's own
        return {"istio": {"virtualService": {"name": name, "routes": [USERS]}}}

    @staticmethod
    def named_in(routing: Json) -> Iterator[str]:
        if name := at(routing, "istio", "virtualService", "name"):
            yield str(name)

    @staticmethod
    def targets(rule: Json) -> list[tuple[str, Json]]:
        return [(_service(each.get("destination")), each) for each in rule.get("route") or []]

    def mirror(self, route: Json) -> int:
        ours = [rule for rule in self._users(route) if _service(rule.get("mirror")) == self.canary]
        # Without a percentage every request is copied (Istio, HTTPRoute.mirror_percentage).
        return max((round(float(at(rule, "mirrorPercentage", "value", default=100))) for rule in ours), default=0)

    def mirrored(self, route: Json, percent: int) -> Json:
        changed = deepcopy(route)
        for rule in self._users(changed):
            rule.pop("mirror", None)
            rule.pop("mirrorPercentage", None)
            if percent:
                rule["mirror"] = {"host": self.canary, "port": {"number": SERVICE_PORT}}
                rule["mirrorPercentage"] = {"value": percent}
        return changed


def _service(destination: Json | None) -> str:
    """The Service's name; Istio takes a short name for one of its own namespace."""
    return str((destination or {}).get("host", "")).partition(".")[0]


ROUTERS: Mapping[TrafficRouter, type[HttpRoutes] | type[VirtualServices]] = {
    TrafficRouter.GATEWAY_API: HttpRoutes,
    TrafficRouter.ISTIO: VirtualServices,
}
"""The kind of each, which is made with the Services of stable and canary."""
