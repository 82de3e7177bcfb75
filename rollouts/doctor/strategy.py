"""What a Rollout says about itself: its strategy, who routes its traffic, how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from rollouts.argo.model import Rollout
from rollouts.argo.phase import waiting_for_controller
from rollouts.doctor.model import Snapshot
from rollouts.doctor.objects import at
from rollouts.kube.model import Json
from rollouts.kube.resources import DEPLOYMENTS

_ROLES = {"canary": ("stableService", "canaryService"), "blueGreen": ("activeService", "previewService")}


def canary(rollout: Json) -> Json:
    """Its canary strategy; empty when it has another one."""
    found: Json = at(rollout, "spec", "strategy", "canary", default={})
    return found


def steps(rollout: Json) -> list[Json]:
    """The steps of its canary."""
    return Rollout(rollout).steps


def routing(rollout: Json) -> Json:
    """Who routes its traffic; empty when shares are shares of pods."""
    found: Json = at(canary(rollout), "trafficRouting", default={})
    return found


def routers(rollout: Json) -> list[str]:
    """The traffic routers that it names: fields beside `managedRoutes` and `maxTrafficWeight`, plugins by name."""
    plain = [key for key in routing(rollout) if key not in {"managedRoutes", "maxTrafficWeight", "plugins"}]
    return [*plain, *plugins(rollout)]


def plugins(rollout: Json) -> Mapping[str, Json]:
    """The configuration of each traffic plugin that it names."""
    found: Mapping[str, Json] = at(routing(rollout), "plugins", default={})
    return found


def gateway_plugins(rollout: Json) -> Mapping[str, Json]:
    """Those of the Gateway API, told by what they are told: the name is whatever the ConfigMap calls it."""
    return {
        name: told
        for name, told in plugins(rollout).items()
        if "gatewayapi" in name.lower() or {"httpRoute", "httpRoutes"} & set(told or {})
    }


def http_routes(rollout: Json) -> list[str]:
    """The HTTPRoutes whose weights the plugin sets."""
    single = [told["httpRoute"] for told in gateway_plugins(rollout).values() if at(told, "httpRoute")]
    several = [
        route["name"]
        for told in gateway_plugins(rollout).values()
        for route in at(told, "httpRoutes", default=[])
        if at(route, "name")
    ]
    return list(dict.fromkeys([*single, *several]))


def route_namespace(rollout: Json) -> str | None:
    """Where the plugin is told to look for its routes; None for the Rollout's own namespace."""
    told = [one["namespace"] for one in gateway_plugins(rollout).values() if at(one, "namespace")]
    return str(told[0]) if told else None


def virtual_services(rollout: Json) -> list[str]:
    """The VirtualServices of the region whose weights the controller sets; those of other namespaces are left out."""
    istio = at(routing(rollout), "istio", default={})
    told = [at(istio, "virtualService", default={}), *at(istio, "virtualServices", default=[])]
    return [one["name"] for one in told if at(one, "name") and "." not in one["name"]]


def services(rollout: Json) -> Mapping[str, str]:
    """Its Services by the field that names them."""
    strategy = at(rollout, "spec", "strategy", default={})
    return {
        field: strategy[kind][field] for kind, fields in _ROLES.items() for field in fields if at(strategy, kind, field)
    }


def replicas(rollout: Json) -> int:
    """How many pods it wants."""
    return Rollout(rollout).replicas


def in_progress(rollout: Json) -> bool:
    """Whether a version is on its way that is not the stable one; a first version has no stable beside it."""
    return bool(Rollout(rollout).stable_hash) and Rollout(rollout).in_progress


def lags(rollout: Json) -> bool:
    """Whether the controller has yet to react: what the status says is then of before."""
    return bool(waiting_for_controller(rollout))


def template(snapshot: Snapshot, rollout: Json) -> Json:
    """Its pod template, also when it borrows that of a Deployment; empty when that cannot be read."""
    found: Json | None = at(rollout, "spec", "template")
    if found is None and at(rollout, "spec", "workloadRef", "kind") == "Deployment":
        workload = snapshot.named(DEPLOYMENTS, str(at(rollout, "spec", "workloadRef", "name")))
        found = at(workload, "spec", "template")
    return found or {}


def pods_wanted(number: Any, of: int, *, default: int) -> int:
    """`maxSurge` and its like in pods: a number, or a share of `of`, rounded up."""
    if number is None:
        return default
    text = str(number)
    return -(-of * int(text[:-1]) // 100) if text.endswith("%") else int(text)


def ago(since: datetime, now: datetime) -> str:
    """How long ago, in one unit."""
    passed = now - since
    for unit, length in (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1))):
        if passed >= 2 * length:
            return f"{passed // length} {unit}"
    return f"{passed.total_seconds():.0f} s"
