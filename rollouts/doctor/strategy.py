"""What a Rollout says about itself: its strategy, who routes its traffic, how far it is, its analysis templates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from rollouts.argo.model import Rollout
from rollouts.argo.state import waiting_for_controller
from rollouts.doctor.model import Snapshot
from rollouts.doctor.queries import EvidenceQuery
from rollouts.kube.objects import at, labels_of
from rollouts.kube.resources import ANALYSIS_TEMPLATES, CLUSTER_ANALYSIS_TEMPLATES, DEPLOYMENTS
from tidegate.core.model import Json, Value

_ROLES = ("stableService", "canaryService")


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
    """The traffic routers that it names: fields besides `managedRoutes` and `maxTrafficWeight`, plugins by name."""
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
    return {field: canary(rollout)[field] for field in _ROLES if at(canary(rollout), field)}


def replicas(rollout: Json) -> int:
    """How many pods it wants."""
    return Rollout(rollout).replicas


def in_progress(rollout: Json) -> bool:
    """Whether a version is on its way that is not the stable one; a first version has no stable next to it."""
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


_PLACE = re.compile(r"\{\{\s*args\.([\w.-]+?)\s*\}\}")
_FIELD = re.compile(r"metadata\.labels\['([^']+)'\]")
"""How fieldRef names a label of the Rollout."""


class TemplateUse(Value):
    """One place of a Rollout that names a template."""

    place: str
    """Such as `steps[2].analysis`."""
    name: str
    kind: str
    template: Json | None
    """None when it is not there."""
    given: Mapping[str, str | None] = {}
    """The Rollout's arguments; None for a value that only the controller knows."""

    @property
    def arguments(self) -> Mapping[str, str | None]:
        """All that have a value, those of the Rollout before the template's own."""
        own = {
            argument["name"]: argument.get("value")
            for argument in at(self.template, "spec", "args", default=[])
            if "value" in argument or "valueFrom" in argument
        }
        return own | dict(self.given)

    @property
    def open_arguments(self) -> list[str]:
        """Those that nobody gives a value."""
        asked = [argument["name"] for argument in at(self.template, "spec", "args", default=[])]
        return [name for name in asked if name not in self.arguments]


def uses(snapshot: Snapshot) -> Iterator[TemplateUse]:
    """Every place of the Rollout that names a template: in the background, in steps, before and after a promotion."""
    rollout = snapshot.rollout
    if rollout is None:
        return
    for place, analysis in _analyses(rollout):
        given = {argument["name"]: _value(argument, rollout) for argument in at(analysis, "args", default=[])}
        for named in at(analysis, "templates", default=[]):
            wide = bool(named.get("clusterScope"))
            resource = CLUSTER_ANALYSIS_TEMPLATES if wide else ANALYSIS_TEMPLATES
            if snapshot.unread(resource):
                continue
            name = str(named.get("templateName"))
            template = snapshot.named(resource, name)
            yield TemplateUse(place=place, name=name, kind=resource.kind, template=template, given=given)


def template_queries(snapshot: Snapshot) -> Iterator[EvidenceQuery]:
    """What these templates ask Prometheus, as far as every argument in the query is known."""
    for use in uses(snapshot):
        for metric in at(use.template, "spec", "metrics", default=[]):
            query = at(metric, "provider", "prometheus", "query")
            filled = _filled(query, use.arguments) if query else None
            if filled:
                conditions = f"{metric.get('successCondition', '')} {metric.get('failureCondition', '')}"
                yield EvidenceQuery(
                    asked_by=f"{use.kind} {use.name}, metric {metric.get('name')}",
                    query=filled,
                    silent_without_traffic="len(result)" in conditions,
                )


def template_names(rollout: Json, *, cluster: bool) -> tuple[str, ...]:
    """The templates that a Rollout names: those of its namespace, or those of the whole cluster."""
    named = [one for _, analysis in _analyses(rollout) for one in at(analysis, "templates", default=[])]
    return tuple(str(one.get("templateName")) for one in named if bool(one.get("clusterScope")) is cluster)


def _analyses(rollout: Json) -> Iterator[tuple[str, Json]]:
    if analysis := at(canary(rollout), "analysis"):
        yield "the analysis in the background", analysis
    for index, step in enumerate(steps(rollout)):
        if analysis := at(step, "analysis"):
            yield f"steps[{index}].analysis", analysis


def _value(argument: Json, rollout: Json) -> str | None:
    """A value, or what the controller would take: a pod hash, or a label of the Rollout."""
    if "value" in argument:
        return str(argument["value"])
    hashes = {"Latest": "currentPodHash", "Stable": "stableRS"}
    field = hashes.get(at(argument, "valueFrom", "podTemplateHashValue", default=""))
    if field:
        return str(at(rollout, "status", field)) if at(rollout, "status", field) else None
    named = _FIELD.search(at(argument, "valueFrom", "fieldRef", "fieldPath", default=""))
    return labels_of(rollout).get(named[1]) if named else None


def _filled(query: str, arguments: Mapping[str, str | None]) -> str | None:
    """The query with every argument's value; None when one is not known here."""
    if any(arguments.get(name) is None for name in _PLACE.findall(query)):
        return None
    return _PLACE.sub(lambda place: str(arguments[place[1]]), query)
