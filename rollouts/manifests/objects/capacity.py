"""The number of engines: the autoscaler, placeholders in a warm pool, the priorities by which these give way, and how
many may be away.

The autoscaler is a ScaledObject of KEDA, which rises fast, falls slowly, and sets `replicas` of the Rollout. A query
without an answer leaves the number as it is: there is no fallback that could take engines away while Prometheus is.

Its queries are sums over engines, so that the answer over the target is the number of engines wanted, never averages:
an average would be multiplied with all pods that there are, canary and warm previous among them, and double the stable
during every trial (argo-rollouts#3849). While users are split the sum over both arms is what the stable needs alone,
so an abort meets enough engines. Copies of requests are left out where the delivery's own metrics tell that there are
some; elsewhere there is rather an engine too many. No engine in sight gives no sample, which is an error to the
autoscaler and never 0.

Placeholder pods of the warm pool hold GPUs, and go the moment an engine wants theirs: the scheduler evicts pods of
lower priority for one that would not fit otherwise. The placeholder then waits for a node, and so makes the cluster's
autoscaler bring the next one before it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rollouts.kube.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    ROLLOUTS,
    SCALED_OBJECTS,
    TRIGGER_AUTHENTICATIONS,
)
from rollouts.manifests.conventions import PLACEHOLDER, cluster_wide, prometheus_credentials, warm_pool
from rollouts.manifests.fields import whole_seconds
from rollouts.manifests.manifest import UNPRIVILEGED, Site, manifest
from rollouts.manifests.objects.nodes import gpu_amount, scheduling
from rollouts.manifests.pod_spec import AutoscaleSpec, WarmPoolSpec
from tidegate.core.access import AuthKind, PrometheusAccess, PrometheusEndpoint
from tidegate.core.model import Json, Value

PLACEHOLDER_PRIORITY = -10
"""Below every pod that says nothing, and the lowest for which the cluster autoscaler still brings nodes."""


def priority_classes(site: Site) -> Iterator[Json]:
    """Of engines where the spec says one, and of placeholders where there are any."""
    if site.fleet.priority:
        why = "Engines that serve users."
        yield manifest(PRIORITY_CLASSES, f"{site.name}-engines", site, value=site.fleet.priority, description=why)
    if site.fleet.warm_pool:
        yield manifest(
            PRIORITY_CLASSES,
            f"{site.name}-placeholders",
            site,
            value=PLACEHOLDER_PRIORITY,
            preemptionPolicy="Never",
            description="Pods that hold nodes with GPUs for engines.",
        )


def placeholders(site: Site, wanted: WarmPoolSpec) -> Json:
    """The Deployment. Its pods lack the label that engines are chosen by, or users' requests would reach them."""
    pod, mark = site.fleet.pod, {PLACEHOLDER: site.name}
    amount = {"cpu": pod.cpu, "memory": pod.memory, **gpu_amount(site)}
    limits = {"memory": pod.memory, **gpu_amount(site)}
    container: Json = {
        "name": "placeholder",
        "image": wanted.image,
        "resources": {"requests": amount, "limits": limits},
        "securityContext": UNPRIVILEGED,
    }
    spec: Json = {
        "priorityClassName": cluster_wide(site.fleet.namespace, f"{site.name}-placeholders"),
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": pod.user, "seccompProfile": {"type": "RuntimeDefault"}},
        **scheduling(site),
        "containers": [container],
    }
    deployment: Json = {
        "replicas": math.ceil(site.replicas * wanted.share),
        "selector": {"matchLabels": mark},
        "template": {"metadata": {"labels": mark}, "spec": spec},
    }
    return manifest(DEPLOYMENTS, warm_pool(site.name), site, spec=deployment)


def disruption_budget(site: Site, unavailable: int) -> Json:
    """How many engines, whatever their version, may be away because nodes are drained."""
    spec = {"maxUnavailable": unavailable, "selector": {"matchLabels": dict(site.selector)}}
    return manifest(POD_DISRUPTION_BUDGETS, site.name, site, spec=spec)


WAITING, KV_CACHE, TTFT = "waiting", "kv-cache", "ttft"
"""Names of the signals."""

_TTFT_WINDOW = "2m"


class Signal(Value):
    """One question, and how much of its answer one engine may have."""

    name: str
    query: str
    target: float


def signals(site: Site, wanted: AutoscaleSpec) -> tuple[Signal, ...]:
    """Those that the spec gives a target."""
    found = []
    if wanted.waiting is not None:
        found.append(Signal(name=WAITING, query=_sum("vllm:num_requests_waiting", site), target=wanted.waiting))
    if wanted.kv_cache is not None:
        found.append(Signal(name=KV_CACHE, query=_sum("vllm:kv_cache_usage_perc", site), target=wanted.kv_cache))
    if wanted.ttft is not None:
        found.append(Signal(name=TTFT, query=_first_token(site), target=wanted.ttft.total_seconds()))
    return tuple(found)


def _sum(metric: str, site: Site) -> str:
    stable, canary = (f"sum({metric}{{{_arm(site, role)}}})" for role in ("stable", "canary"))
    return f"{stable} + (({canary} unless on () ({_copied(site)} > 0)) or on () 0 * {stable})"


def _first_token(site: Site) -> str:
    """Engines, each as slow as all: twice the target asks for twice the engines. An idle region asks for none."""
    users = _arm(site, "stable")
    engines = f"count(vllm:num_requests_running{{{users}}})"
    buckets = f"sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{{{users}}}[{_TTFT_WINDOW}]))"
    return f"({engines} * (histogram_quantile(0.95, {buckets}) >= 0)) or 0 * {engines}"


def _arm(site: Site, role: str) -> str:
    return f'service="{site.name}",region="{site.release.region}",role="{role}"'


def _copied(site: Site) -> str:
    return f'max(tidegate_delivery_mirror_percent{{service="{site.name}",region="{site.release.region}"}})'


POLLING_SECONDS = 15
"""As often as Prometheus scrapes."""


def scaled_object(site: Site, wanted: AutoscaleSpec) -> Json:
    """The autoscaler that the spec asks for."""
    metadata = _trigger_metadata(site.prometheus.for_keda)
    credentials = trigger_authentication(site)
    named: Json = {"authenticationRef": {"name": credentials["metadata"]["name"]}} if credentials else {}
    spec: Json = {
        "scaleTargetRef": {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind, "name": site.name},
        "minReplicaCount": wanted.min_replicas,
        "maxReplicaCount": wanted.max_replicas,
        "pollingInterval": POLLING_SECONDS,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(wanted)}},
        "triggers": [
            {
                "type": "prometheus",
                "name": signal.name,
                "metricType": "AverageValue",
                "metadata": {
                    **metadata,
                    "query": signal.query,
                    "threshold": f"{signal.target:g}",
                    "ignoreNullValues": "false",
                },
                **named,
            }
            for signal in signals(site, wanted)
        ],
    }
    return manifest(SCALED_OBJECTS, site.name, site, spec=spec)


def _behavior(wanted: AutoscaleSpec) -> Json:
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": whole_seconds(wanted.up_after),
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": 60},
                {"type": "Pods", "value": 2, "periodSeconds": 60},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": whole_seconds(wanted.down_after),
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    }


_MODES = {AuthKind.BEARER: "bearer", AuthKind.BASIC: "basic", AuthKind.CERTIFICATE: "tls"}
_PARAMETERS = {
    ("auth", "bearer"): "bearerToken",
    ("auth", "basic", "username"): "username",
    ("auth", "basic", "password"): "password",
    ("auth", "certificate", "certificate"): "cert",
    ("auth", "certificate", "key"): "key",
    ("ca",): "ca",
}
"""Names of KEDA's Prometheus scaler for what an access names."""


def trigger_authentication(site: Site) -> Json | None:
    """How KEDA says to Prometheus who asks: an object of the set-up that names Secrets, which tidegate may not write;
    None where it need not say so.
    """
    endpoint = site.prometheus.for_keda
    if endpoint.auth is None or site.fleet.autoscale is None:
        return None
    if endpoint.auth.sigv4:
        spec: Json = {"podIdentity": {"provider": "aws"}}
    else:
        named = ((where, source.secret) for where, source in endpoint.sources())
        spec = {
            "secretTargetRef": [
                {"parameter": _PARAMETERS[where], "name": secret.name, "key": secret.key}
                for where, secret in named
                if secret
            ]
        }
    return manifest(TRIGGER_AUTHENTICATIONS, prometheus_credentials(site.name), site, spec=spec)


def _trigger_metadata(endpoint: PrometheusEndpoint) -> Json:
    """What stands in the trigger itself, nothing of it secret."""
    auth = endpoint.auth
    mode = _MODES.get(auth.kind) if auth else None
    return {
        "serverAddress": endpoint.url,
        **({"authModes": mode} if mode else {}),
        **({"customHeaders": f"{PrometheusAccess.TENANT_HEADER}={endpoint.tenant}"} if endpoint.tenant else {}),
        **({"awsRegion": auth.sigv4.region} if auth and auth.sigv4 else {}),
    }
