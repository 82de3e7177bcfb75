"""The traffic routers: the Gateway API plugin and Istio, each with the four things that the controller asks of one.

Upstream: `rollout/trafficrouting/trafficroutingutil.go` (the interface), `rollout/trafficrouting/plugin/plugin.go`,
rollouts-plugin-trafficrouter-gatewayapi `pkg/plugin/{plugin,httproute}.go`, and
`rollout/trafficrouting/istio/istio.go`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Protocol

from fakes.argo.reconciliation import ReconcileError, Reconciliation

from rollouts.kube.model import Json
from rollouts.kube.resources import CONFIG_MAPS, HTTP_ROUTES, VIRTUAL_SERVICES

GATEWAY_PLUGIN = "argoproj-labs/gatewayAPI"
IN_PROGRESS = "rollouts.argoproj.io/gatewayapi-canary"
"""On a route while its canary has weight (`pkg/plugin/labels.go`)."""
_CANNOT_START = "unable to start plugin system: unable to get plugin client ({}) for ping: exec: Stdout already set"
"""As in argo-rollouts#3918."""
BACKEND_NOT_FOUND = "backendRef was not found in httpRoute"


class Router(Protocol):
    """`TrafficRoutingReconciler`; `VerifyWeight` is left out, since neither of these verifies anything."""

    def set_weight(self, weight: int) -> None: ...
    def set_header_route(self, route: Json) -> None: ...
    def set_mirror_route(self, route: Json) -> None: ...
    def remove_managed_routes(self) -> None: ...


def routers_of(r: Reconciliation) -> Iterator[Router]:
    """All that the strategy names.

    Raises:
        ReconcileError: a plugin is unknown or does not start.
    """
    traffic = r.rollout.traffic or {}
    if "istio" in traffic:
        yield Istio(r, traffic["istio"])
    for name, config in traffic.get("plugins", {}).items():
        if name != GATEWAY_PLUGIN:
            raise ReconcileError(f"plugin {name} not configured in configmap")
        if r.world.plugin_broken:
            raise ReconcileError(f"failed to get traffic router plugin {name}: {_CANNOT_START.format(name)}")
        yield GatewayApi(r, config)


class GatewayApi:
    """Weights of backends on HTTPRoutes, found by the Services' names alone."""

    def __init__(self, r: Reconciliation, config: Json) -> None:
        self._r = r
        self._config = config
        self._names = (
            [config["httpRoute"]] if "httpRoute" in config else [one["name"] for one in config.get("httpRoutes", ())]
        )

    def set_weight(self, weight: int) -> None:
        """Every rule that names canary or stable; each must be named somewhere. Filters stay as they are."""
        canary, stable = (str(self._r.rollout.strategy.get(f"{arm}Service")) for arm in ("canary", "stable"))
        for route in self._routes():
            for service, share in ((canary, weight), (stable, 100 - weight)):
                references = [one for rule in route["spec"].get("rules", ()) for one in _backends(rule, service)]
                if not references:
                    raise ReconcileError(BACKEND_NOT_FOUND)
                for reference in references:
                    reference["weight"] = share
            self._mark(route, in_progress=weight > 0)
            self._r.world.update(route)

    def set_header_route(self, route: Json) -> None:
        """A rule to the canary alone for requests with these headers; its number is kept in a ConfigMap."""
        if not route.get("match"):
            self._remove([route["name"]])
            return
        managed = self._managed()
        canary = str(self._r.rollout.strategy.get("canaryService"))
        for http_route in self._routes():
            name, rules = http_route["metadata"]["name"], http_route["spec"]["rules"]
            base = next((rule for rule in rules if any(_backends(rule, canary))), None)
            if base is None:
                raise ReconcileError(BACKEND_NOT_FOUND)
            if name in managed.get(route["name"], {}):
                continue
            backend = {key: part for key, part in next(_backends(base, canary)).items() if key in ("name", "port")}
            headers = [_header(match) for match in route["match"]]
            rule: Json = {
                "matches": [match | {"headers": headers} for match in base.get("matches", [{}])],
                "filters": copy.deepcopy(base.get("filters", [])),
                "backendRefs": [backend | {"group": "", "kind": "Service"}],
            }
            rules.append(rule)
            self._r.world.update(http_route)
            managed.setdefault(route["name"], {})[name] = len(rules) - 1
        self._remember(managed)

    def set_mirror_route(self, route: Json) -> None:
        """Nothing, and a success (plugin 0.15.0, `plugin.go`: `SetMirrorRoute` answers an empty `RpcError`)."""

    def remove_managed_routes(self) -> None:
        self._remove([one["name"] for one in (self._r.rollout.traffic or {}).get("managedRoutes", ())])

    def _remove(self, names: list[str]) -> None:
        managed = self._managed()
        if not set(names) & set(managed):
            return
        for http_route in self._routes():
            name = http_route["metadata"]["name"]
            gone = {managed[each].pop(name) for each in names if name in managed.get(each, {})}
            rules = http_route["spec"]["rules"]
            http_route["spec"]["rules"] = [rule for index, rule in enumerate(rules) if index not in gone]
            for places in managed.values():
                if name in places:
                    places[name] -= sum(index < places[name] for index in gone)
            self._r.world.update(http_route)
        self._remember({each: places for each, places in managed.items() if places})

    def _routes(self) -> Iterator[Json]:
        namespace = self._config.get("namespace", self._r.rollout.namespace)
        for name in self._names:
            found = self._r.world.find(HTTP_ROUTES, name, namespace)
            if found is None:
                raise ReconcileError(f'httproutes.gateway.networking.k8s.io "{name}" not found')
            yield found

    def _mark(self, route: Json, *, in_progress: bool) -> None:
        if self._config.get("disableInProgressLabel"):
            return
        labels = {key: text for key, text in route["metadata"].get("labels", {}).items() if key != IN_PROGRESS}
        if in_progress:
            labels[IN_PROGRESS] = "in-progress"
        if labels or "labels" in route["metadata"]:
            route["metadata"]["labels"] = labels

    @property
    def _map_name(self) -> str:
        return str(self._config.get("configMap", "argo-gatewayapi-configmap"))

    def _managed(self) -> dict[str, dict[str, int]]:
        """By managed route and HTTPRoute: the index of the rule."""
        found = self._r.world.find(CONFIG_MAPS, self._map_name, self._r.rollout.namespace) or {}
        managed: dict[str, dict[str, int]] = json.loads((found.get("data") or {}).get("httpManagedRoutes", "{}"))
        return managed

    def _remember(self, managed: dict[str, dict[str, int]]) -> None:
        namespace, data = self._r.rollout.namespace, {"httpManagedRoutes": json.dumps(managed)}
        found = self._r.world.find(CONFIG_MAPS, self._map_name, namespace)
        if found is not None:
            self._r.world.update(found | {"data": data})
            return
        metadata = {"name": self._map_name, "namespace": namespace}
        self._r.world.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


class Istio:
    """Weights of a VirtualService's destinations, by host or by subset; managed routes stand before all others."""

    def __init__(self, r: Reconciliation, config: Json) -> None:
        self._r = r
        self._subsets = config.get("destinationRule")
        self._services = [config["virtualService"]] if "virtualService" in config else config.get("virtualServices", [])
        self._managed = [one["name"] for one in (r.rollout.traffic or {}).get("managedRoutes", ())]

    def set_weight(self, weight: int) -> None:
        for wanted, service in self._virtual_services():
            for route in self._weighted(wanted, service):
                for destination in route["route"]:
                    destination["weight"] = weight if self._is_canary(destination) else 100 - weight
            self._r.world.update(service)

    def set_header_route(self, route: Json) -> None:
        if not route.get("match"):
            self._replace(route["name"], None)
            return
        headers = {one["headerName"]: one["headerValue"] for one in route["match"]}
        to_canary = [{"destination": self._destination("canary"), "weight": 100}]
        self._replace(route["name"], {"match": [{"headers": headers}], "route": to_canary})

    def set_mirror_route(self, route: Json) -> None:
        """Copies of what matches; without `match` the mirror is taken away instead (`istio.go`, `SetMirrorRoute`)."""
        if not route.get("match"):
            self._replace(route["name"], None)
            return
        mirror = {
            "match": route["match"],
            "mirror": self._destination("canary"),
            "mirrorPercentage": {"value": float(route.get("percentage", 100))},
        }
        self._replace(route["name"], mirror)

    def remove_managed_routes(self) -> None:
        for name in self._managed:
            self._replace(name, None)

    def _replace(self, name: str, rule: Json | None) -> None:
        """A managed route instead of the one of its name; a mirror keeps the weights of the first weighted route."""
        for wanted, service in self._virtual_services():
            routes = service["spec"]["http"]
            kept = {one["name"]: one for one in routes if one.get("name") in self._managed and one["name"] != name}
            if rule is not None:
                weighted = self._weighted(wanted, service)[0]["route"]
                kept[name] = {"name": name, "route": copy.deepcopy(weighted)} | rule
            plain = [one for one in routes if one.get("name") not in self._managed]
            service["spec"]["http"] = [kept[one] for one in self._managed if one in kept] + plain
            self._r.world.update(service)

    def _virtual_services(self) -> Iterator[tuple[list[str], Json]]:
        for config in self._services:
            name, _, namespace = str(config["name"]).partition(".")
            found = self._r.world.find(VIRTUAL_SERVICES, name, namespace or self._r.rollout.namespace)
            if found is None:
                raise ReconcileError(f'virtualservices.networking.istio.io "{name}" not found')
            yield config.get("routes", []), found

    def _weighted(self, wanted: list[str], service: Json) -> list[Json]:
        """The routes that the strategy names, or the only one there is, and mirrors of them."""
        routes = service["spec"].get("http", [])
        plain = [one for one in routes if one.get("name") not in self._managed]
        chosen = [one for one in plain if one.get("name") in wanted] if wanted else plain
        if not chosen or (not wanted and len(plain) != 1):
            raise ReconcileError("spec.http[] should have a single route or be named in the rollout")
        mirrors = [one for one in routes if one.get("name") in self._managed and "mirror" in one]
        hosts = [self._destination(arm) for arm in ("canary", "stable")]
        for route in chosen + mirrors:
            found = [one["destination"] for one in route.get("route", ())]
            if not all(any(_same(host, one) for one in found) for host in hosts):
                raise ReconcileError("Stable and canary services not found among the route's destinations")
        return chosen + mirrors

    def _destination(self, arm: str) -> Json:
        if self._subsets:
            return {"subset": self._subsets[f"{arm}SubsetName"]}
        return {"host": self._r.rollout.strategy.get(f"{arm}Service")}

    def _is_canary(self, destination: Json) -> bool:
        return _same(self._destination("canary"), destination["destination"])


def _same(wanted: Json, found: Json) -> bool:
    """A host may be written with its namespace: `name.namespace.svc.cluster.local`."""
    return all(str(found.get(key, "")).split(".")[0] == text for key, text in wanted.items())


def _backends(rule: Json, service: str) -> Iterator[Json]:
    return (one for one in rule.get("backendRefs", ()) if one.get("name") == service)


def _header(match: Json) -> Json:
    """A prefix becomes a regular expression: Gateway API has none."""
    value = match["headerValue"]
    if "exact" in value:
        return {"type": "Exact", "name": match["headerName"], "value": value["exact"]}
    pattern = value["regex"] if "regex" in value else value["prefix"] + ".*"
    return {"type": "RegularExpression", "name": match["headerName"], "value": pattern}
