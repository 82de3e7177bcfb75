"""What a Rollout says about itself: its strategy, who routes its traffic, its Services and its pod template."""

from __future__ import annotations

from collections.abc import Mapping

from rollouts.argo.model import Rollout
from rollouts.doctor.model import Snapshot
from rollouts.kube.objects import at
from rollouts.kube.resources import ANALYSIS_RUNS, ANALYSIS_TEMPLATES, DEPLOYMENTS, EXPERIMENTS, ROLLOUTS
from tidegate.core.model import Json

ARGO_ROLLOUTS = (ROLLOUTS, ANALYSIS_RUNS, ANALYSIS_TEMPLATES, EXPERIMENTS)
"""Its kinds: the controller does not start without all of their definitions."""
_ROLES = ("stableService", "canaryService")


def canary(rollout: Json) -> Json:
    """Its canary strategy; empty when it has another one."""
    found: Json = at(rollout, "spec", "strategy", "canary", default={})
    return found


def routing(rollout: Json) -> Json:
    """Who routes its traffic; empty when shares are shares of pods."""
    found: Json = at(canary(rollout), "trafficRouting", default={})
    return found


def routers(rollout: Json) -> list[str]:
    """The traffic routers that it names: fields besides `managedRoutes` and `maxTrafficWeight`, plugins by name."""
    plain = [key for key in routing(rollout) if key not in {"managedRoutes", "maxTrafficWeight", "plugins"}]
    return [*plain, *plugins(rollout)]


def plugins(rollout: Json) -> Mapping[str, Json]:
    """The configuration of each traffic plugin that it names."""
    found: Mapping[str, Json] = at(routing(rollout), "plugins", default={})
    return found


def gateway_plugins(rollout: Json) -> list[Json]:
    """The configuration of those of the Gateway API; the name alone is whatever the ConfigMap calls it."""
    return [
        told
        for name, told in plugins(rollout).items()
        if "gatewayapi" in name.lower() or {"httpRoute", "httpRoutes"} & set(told or {})
    ]


def http_routes(rollout: Json) -> list[str]:
    """The HTTPRoutes whose weights the plugin sets."""
    told = gateway_plugins(rollout)
    single = [at(one, "httpRoute") for one in told]
    several = [at(route, "name") for one in told for route in at(one, "httpRoutes", default=[])]
    return list(dict.fromkeys(filter(None, [*single, *several])))


def route_namespace(rollout: Json) -> str | None:
    """Where the plugin is told to look for its routes; None for the Rollout's own namespace."""
    return next((str(one["namespace"]) for one in gateway_plugins(rollout) if at(one, "namespace")), None)


def virtual_services(rollout: Json) -> list[str]:
    """The VirtualServices of the region whose weights the controller sets; those of other namespaces are left out."""
    istio = at(routing(rollout), "istio", default={})
    told = [at(istio, "virtualService", default={}), *at(istio, "virtualServices", default=[])]
    return [one["name"] for one in told if at(one, "name") and "." not in one["name"]]


def services(rollout: Json) -> Mapping[str, str]:
    """Its Services by the field that names them."""
    return {field: canary(rollout)[field] for field in _ROLES if at(canary(rollout), field)}


def on_trial(rollout: Json) -> bool:
    """Whether a version is on its way that is not the stable one; a first version has no stable next to it."""
    return bool(Rollout(rollout).stable_hash) and Rollout(rollout).in_progress


def template(snapshot: Snapshot, rollout: Json) -> Json:
    """Its pod template, also when it borrows that of a Deployment; empty when that cannot be read."""
    found: Json | None = at(rollout, "spec", "template")
    if found is None and at(rollout, "spec", "workloadRef", "kind") == "Deployment":
        workload = snapshot.named(DEPLOYMENTS, str(at(rollout, "spec", "workloadRef", "name")))
        found = at(workload, "spec", "template")
    return found or {}
