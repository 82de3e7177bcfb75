"""Who changes the number of engines: a ScaledObject of KEDA, or a HorizontalPodAutoscaler.

Both rise fast and fall slowly, and both set `replicas` of the Rollout, which gives the stable as many. A question
without an answer leaves the number as it is: there is no fallback that could take engines away while Prometheus is.
"""

from __future__ import annotations

from rollouts.kube.model import Json
from rollouts.kube.resources import HORIZONTAL_POD_AUTOSCALERS, ROLLOUTS, SCALED_OBJECTS
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.objects.strategy import seconds
from rollouts.manifests.scaling_spec import AutoscaleSpec, Scaler
from rollouts.manifests.signals import Signal, signals

POLLING_SECONDS = 15
"""As often as Prometheus scrapes."""


QUERY = "tidegate.dev/query-"
"""Annotations of an HPA: what the adapter has to ask for each of its metrics, which the HPA itself only names."""


def scaler(site: Site, wanted: AutoscaleSpec) -> Json:
    """The object that the spec asks for."""
    if wanted.by is Scaler.HPA:
        return _autoscaler(site, wanted)
    return _scaled_object(site, wanted)


def metric_name(signal: Signal) -> str:
    """Of the external metric that an adapter has to serve for an HPA."""
    return f"tidegate_{signal.name.replace('-', '_')}"


def _scaled_object(site: Site, wanted: AutoscaleSpec) -> Json:
    address = site.fleet.regions[site.release.region].prometheus.for_keda
    spec: Json = {
        "scaleTargetRef": _target(site),
        "minReplicaCount": wanted.least,
        "maxReplicaCount": wanted.most,
        "pollingInterval": POLLING_SECONDS,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(wanted)}},
        "triggers": [
            {
                "type": "prometheus",
                "name": signal.name,
                "metricType": "AverageValue",
                "metadata": {
                    "serverAddress": address,
                    "query": signal.query,
                    "threshold": f"{signal.target:g}",
                    "ignoreNullValues": "false",
                },
            }
            for signal in signals(site, wanted)
        ],
    }
    return manifest(SCALED_OBJECTS, site.name, site, spec=spec)


def _autoscaler(site: Site, wanted: AutoscaleSpec) -> Json:
    asked = signals(site, wanted)
    whose = {"matchLabels": {"service": site.name, "region": site.release.region}}
    spec: Json = {
        "scaleTargetRef": _target(site),
        "minReplicas": wanted.least,
        "maxReplicas": wanted.most,
        "behavior": _behavior(wanted),
        "metrics": [
            {
                "type": "External",
                "external": {
                    "metric": {"name": metric_name(signal), "selector": whose},
                    "target": {"type": "AverageValue", "averageValue": _quantity(signal.target)},
                },
            }
            for signal in asked
        ],
    }
    whole = manifest(HORIZONTAL_POD_AUTOSCALERS, site.name, site, spec=spec)
    queries = {f"{QUERY}{signal.name}": signal.query for signal in asked}
    return {**whole, "metadata": {**whole["metadata"], "annotations": queries}}


def _target(site: Site) -> Json:
    return {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind, "name": site.name}


def _behavior(wanted: AutoscaleSpec) -> Json:
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": seconds(wanted.up_after),
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": 60},
                {"type": "Pods", "value": 2, "periodSeconds": 60},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": seconds(wanted.down_after),
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    }


def _quantity(target: float) -> str:
    """In thousandths where it is no whole number: the API server keeps quantities in that form."""
    return f"{target:g}" if target == int(target) else f"{max(1, round(target * 1000))}m"
