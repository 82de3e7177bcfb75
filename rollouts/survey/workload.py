"""What stands around a workload of others: its strategy, its autoscaler, who scrapes it, what selects it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollouts.argo.model import Rollout
from rollouts.doctor.strategy import canary, routers
from rollouts.kube.objects import at, labels_of, matches, name_of
from rollouts.kube.resources import (
    ANALYSIS_TEMPLATES,
    HORIZONTAL_POD_AUTOSCALERS,
    POD_DISRUPTION_BUDGETS,
    POD_MONITORS,
    SCALED_OBJECTS,
    SERVICE_MONITORS,
    SERVICES,
)
from rollouts.survey.model import MonitorFacts, PrometheusPlace, ScalerFacts, StrategyFacts
from rollouts.survey.objects import Objects
from rollouts.survey.traffic import selecting
from tidegate.core.model import Json
from tidegate.core.text import redacted

ONE_DEFAULT = 1
"""Kubernetes' own number of replicas, and KEDA's and the HPA's of the fewest."""
KEDA_MOST = 100
"""KEDA's own `maxReplicaCount`."""


def replicas(workload: Json) -> int:
    """How many pods it asks for; at least one."""
    return max(1, int(at(workload, "spec", "replicas", default=ONE_DEFAULT)))


def strategy_facts(workload: Json) -> StrategyFacts:
    """How a version becomes stable."""
    analyses = _template_names(workload)
    if at(workload, "spec", "strategy", "blueGreen") is not None:
        green = at(workload, "spec", "strategy", "blueGreen", default={})
        return StrategyFacts(kind="blueGreen", analyses=analyses, warm_seconds=green.get("scaleDownDelaySeconds"))
    told = canary(workload)
    weights = [int(step["setWeight"]) for step in Rollout(workload).steps if "setWeight" in step]
    return StrategyFacts(
        kind="canary",
        weights=tuple(sorted({each for each in weights if 0 < each < 100})),
        routers=tuple(routers(workload)),
        analyses=analyses,
        min_canary=told.get("minPodsPerReplicaSet"),
        warm_seconds=told.get("scaleDownDelaySeconds"),
        dynamic_stable=bool(told.get("dynamicStableScale")),
    )


def _template_names(rollout: Json) -> tuple[str, ...]:
    """The analysis templates that a Rollout names, in the background and in steps."""
    analyses = [canary(rollout).get("analysis"), *(step.get("analysis") for step in Rollout(rollout).steps)]
    named = [one for analysis in analyses for one in at(analysis, "templates", default=[])]
    return tuple(dict.fromkeys(str(one.get("templateName")) for one in named))


def budget(objects: Objects, template: Json) -> int | None:
    """Pods that may be away at once, where a budget says so by a number."""
    for each in objects.all(POD_DISRUPTION_BUDGETS):
        away = at(each, "spec", "maxUnavailable")
        if matches(at(each, "spec", "selector", default={}), labels_of(template)) and isinstance(away, int):
            return away
    return None


def selectors(objects: Objects, workload: Json, template: Json) -> frozenset[str]:
    """Keys of labels by which anything selects its pods: pods of another workload must not have all of them."""
    labels = labels_of(template)
    asked: list[Json] = [at(workload, "spec", "selector", default={})]
    asked += [at(each, "spec", "selector", default={}) for each in objects.all(POD_DISRUPTION_BUDGETS)]
    asked += [at(each, "spec", "selector", default={}) for each in objects.all(POD_MONITORS)]
    keys = {
        key
        for selector in asked
        if matches(selector, labels)
        for key in (
            *at(selector, "matchLabels", default={}),
            *(str(each.get("key")) for each in at(selector, "matchExpressions", default=[])),
        )
    }
    by_service = [
        key for each in selecting(objects, workload, template) for key in at(each, "spec", "selector", default={})
    ]
    return frozenset({*keys, *by_service})


def scaler(objects: Objects, workload: Json) -> ScalerFacts | None:
    """Who scales it: KEDA's ScaledObject before the HPA that KEDA makes of it."""
    for each in objects.all(SCALED_OBJECTS):
        spec = at(each, "spec", default={})
        if _targets(at(spec, "scaleTargetRef", default={}), workload, "Deployment"):
            return ScalerFacts(
                kind=SCALED_OBJECTS.kind,
                name=name_of(each),
                min_replicas=int(at(spec, "minReplicaCount", default=0)),
                max_replicas=int(at(spec, "maxReplicaCount", default=KEDA_MOST)),
                signals=tuple(_trigger(one) for one in at(spec, "triggers", default=[])),
            )
    for each in objects.all(HORIZONTAL_POD_AUTOSCALERS):
        spec = at(each, "spec", default={})
        if _targets(at(spec, "scaleTargetRef", default={}), workload, ""):
            return ScalerFacts(
                kind=HORIZONTAL_POD_AUTOSCALERS.kind,
                name=name_of(each),
                min_replicas=int(at(spec, "minReplicas", default=ONE_DEFAULT)),
                max_replicas=int(spec["maxReplicas"]),
                signals=tuple(_metric(one) for one in at(spec, "metrics", default=[])),
            )
    return None


def _targets(reference: Json, workload: Json, usual: str) -> bool:
    return (reference.get("kind") or usual, reference.get("name")) == (workload.get("kind"), name_of(workload))


def _trigger(trigger: Json) -> str:
    named = at(trigger, "metadata", "metricName") or at(trigger, "name") or ""
    return " ".join(part for part in (str(trigger.get("type", "")), str(named)) if part)


def _metric(metric: Json) -> str:
    kind = str(metric.get("type", ""))
    inner = at(metric, kind[:1].lower() + kind[1:], default={})
    return f"{kind} {at(inner, 'name') or at(inner, 'metric', 'name') or ''}".strip()


def monitors(objects: Objects, template: Json, services: Iterable[str]) -> tuple[MonitorFacts, ...]:
    """Those that scrape its pods, by their labels or by those of its Services."""
    return tuple(_monitors(objects, labels_of(template), set(services)))


def _monitors(objects: Objects, labels: object, services: set[str]) -> Iterator[MonitorFacts]:
    of_services = [labels_of(each) for each in objects.all(SERVICES) if name_of(each) in services]
    places = ((POD_MONITORS, "podMetricsEndpoints", [labels]), (SERVICE_MONITORS, "endpoints", of_services))
    for resource, field, candidates in places:
        for each in objects.all(resource):
            selector = at(each, "spec", "selector", default={})
            # An empty selector takes everything: that it takes these pods too says nothing of them.
            if selector and any(matches(selector, one) for one in candidates):  # type: ignore[arg-type]
                yield MonitorFacts(
                    kind=resource.kind,
                    name=name_of(each),
                    labels=labels_of(each),
                    interval=str(at(each, "spec", field, 0, "interval", default="")),
                )


def prometheus_places(objects: Objects, workload: Json) -> tuple[PrometheusPlace, ...]:
    """Addresses of Prometheus that analyses and autoscalers of the workload ask."""
    return tuple(dict.fromkeys(_places(objects, workload)))


def _places(objects: Objects, workload: Json) -> Iterator[PrometheusPlace]:
    named = set(_template_names(workload))
    for template in objects.all(ANALYSIS_TEMPLATES):
        for metric in at(template, "spec", "metrics", default=[]):
            address = str(at(metric, "provider", "prometheus", "address", default=""))
            if name_of(template) in named and address.startswith("http"):
                source = f"AnalysisTemplate {name_of(template)}"
                yield PrometheusPlace(address=redacted(address).rstrip("/"), source=source, asked_by="rollouts")
    for each in objects.all(SCALED_OBJECTS):
        if not _targets(at(each, "spec", "scaleTargetRef", default={}), workload, "Deployment"):
            continue
        for trigger in at(each, "spec", "triggers", default=[]):
            address = str(at(trigger, "metadata", "serverAddress", default=""))
            if trigger.get("type") == "prometheus" and address.startswith("http"):
                source = f"ScaledObject {name_of(each)}"
                yield PrometheusPlace(address=redacted(address).rstrip("/"), source=source, asked_by="keda")
