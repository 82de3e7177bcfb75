"""How many engines there are, and on which nodes: autoscaler, warm pool, Karpenter's node pool.

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
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rollouts.kube.resources import (
    DEPLOYMENTS,
    NODE_POOLS,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    ROLLOUTS,
    SCALED_OBJECTS,
)
from rollouts.manifests.conventions import PLACEHOLDER, cluster_wide
from rollouts.manifests.manifest import UNPRIVILEGED, Site, manifest
from rollouts.manifests.pod_spec import CPU, GPU, GPUS, AutoscaleSpec, CapacityType, KarpenterSpec, WarmPoolSpec
from tidegate.core.model import Json

SPOT = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
}
"""Labels of nodes that a cloud may take back."""

POOL = "tidegate.dev/pool"
"""Label of the nodes of a pool of ours."""


def gpu_labels(site: Site) -> Mapping[str, str]:
    """What a node with the engine's GPU is labelled with; nothing for a CPU."""
    accelerator = site.release.accelerator
    return {} if accelerator == CPU else GPUS[accelerator][site.fleet.nodes.gpu_labels]


def gpu_amount(site: Site) -> dict[str, str]:
    """What a container asks for to get its GPUs."""
    release = site.release
    each = release.launch.accelerators if release.launch else release.accelerators
    return {GPU: str(each)} if release.accelerator in GPUS else {}


def scheduling(site: Site) -> Json:
    """The parts of a pod's spec that choose its node: engines and their placeholders want the same."""
    nodes = site.fleet.nodes
    pool = {POOL: cluster_wide(site.fleet.namespace, site.name)} if nodes.karpenter else {}
    selector = {**gpu_labels(site), **pool, **nodes.selector}
    tolerations = [{"key": key, "operator": "Exists"} for key in nodes.tolerates]
    parts: Json = {"nodeSelector": selector, "tolerations": tolerations, "affinity": {"nodeAffinity": _paid_as(site)}}
    return {key: value for key, value in parts.items() if value}


def node_pool(site: Site, karpenter: KarpenterSpec) -> Json:
    """Nodes for this delivery alone. Karpenter tries spot first where both are allowed, and goes on to on-demand."""
    nodes = site.fleet.nodes
    allowed = [CapacityType.SPOT] if nodes.capacity is CapacityType.SPOT else []
    wanted = {key: [value] for key, value in {**gpu_labels(site), **nodes.selector}.items()}
    wanted["karpenter.sh/capacity-type"] = [str(each) for each in (*allowed, CapacityType.ON_DEMAND)]
    template = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": karpenter.node_class},
        "requirements": [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()],
        "taints": [{"key": key, "effect": "NoSchedule"} for key in nodes.tolerates],
    }
    labels = {POOL: cluster_wide(site.namespace, site.name)}
    spec: Json = {
        "template": {"metadata": {"labels": labels}, "spec": template},
        "limits": dict.fromkeys(gpu_amount(site), str(karpenter.most_gpus)),
        # A node with an engine on it is never emptied for a cheaper one: the engine would take minutes to come back.
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m"},
    }
    return manifest(NODE_POOLS, site.name, site, spec=spec)


def _paid_as(site: Site) -> Json:
    """Spot where there are any, else whatever there is; or no spot at all."""
    if site.fleet.nodes.capacity is CapacityType.SPOT:
        asked = [{"key": key, "operator": "In", "values": [value]} for key, value in SPOT.items()]
        preferred = [{"weight": 100, "preference": {"matchExpressions": [each]}} for each in asked]
        return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    # A node without the label is no spot node, and passes.
    never = [
        {"key": key, "operator": "NotIn", "values": [value]} for key, value in SPOT.items()
    ]  # codespell:ignore notin
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": never}]}}


PLACEHOLDER_PRIORITY = -10
"""Below every pod that says nothing, and the lowest for which the cluster autoscaler still brings nodes."""


def placeholders(site: Site, wanted: WarmPoolSpec) -> Iterator[Json]:
    """Their PriorityClass and Deployment. They lack the label that engines are chosen by, or users' requests would
    reach them.
    """
    pod, mark, name = site.fleet.pod, {PLACEHOLDER: site.name}, f"{site.name}-placeholders"
    said: Json = {"preemptionPolicy": "Never", "description": "Pods that hold nodes with GPUs for engines."}
    yield manifest(PRIORITY_CLASSES, name, site, value=PLACEHOLDER_PRIORITY, **said)
    limits = {"memory": pod.memory, **gpu_amount(site)}
    container: Json = {
        "name": "placeholder",
        "image": wanted.image,
        "resources": {"requests": {"cpu": pod.cpu, **limits}, "limits": limits},
        "securityContext": UNPRIVILEGED,
    }
    spec: Json = {
        "priorityClassName": cluster_wide(site.namespace, name),
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
    yield manifest(DEPLOYMENTS, f"{site.name}-warm-pool", site, spec=deployment)


def disruption_budget(site: Site, unavailable: int) -> Json:
    """How many engines, whatever their version, may be away because nodes are drained."""
    spec = {"maxUnavailable": unavailable, "selector": {"matchLabels": dict(site.selector)}}
    return manifest(POD_DISRUPTION_BUDGETS, site.name, site, spec=spec)


class Signal(NamedTuple):
    """One question, and how much of its answer one engine may have."""

    name: str
    query: str
    target: float


WAITING, KV_CACHE = "waiting", "kv-cache"
"""Names of the signals."""


def signals(site: Site, wanted: AutoscaleSpec) -> tuple[Signal, ...]:
    """Those that the spec gives a target."""
    place = f'service="{site.name}",region="{site.release.region}"'
    stable, copied = f'{place},role="stable"', f"max(tidegate_delivery_mirror_percent{{{place}}})"

    def both(metric: str) -> str:
        users, canary = f"sum({metric}{{{stable}}})", f'sum({metric}{{{place},role="canary"}})'
        return f"{users} + (({canary} unless on () ({copied} > 0)) or on () 0 * {users})"

    asked = (
        (WAITING, both("vllm:num_requests_waiting"), wanted.waiting),
        (KV_CACHE, both("vllm:kv_cache_usage_perc"), wanted.kv_cache),
    )
    return tuple(Signal(name, query, target) for name, query, target in asked if target is not None)


POLLING_SECONDS = 15
"""As often as Prometheus scrapes."""


_BEHAVIOR: Json = {
    "scaleUp": {
        "stabilizationWindowSeconds": 30,
        "selectPolicy": "Max",
        "policies": [
            {"type": kind, "value": value, "periodSeconds": 60} for kind, value in (("Percent", 100), ("Pods", 2))
        ],
    },
    # An engine that goes takes minutes to come back.
    "scaleDown": {
        "stabilizationWindowSeconds": 15 * 60,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
    },
}


def scaled_object(site: Site, wanted: AutoscaleSpec) -> Json:
    """The autoscaler that the spec asks for."""
    where = {"serverAddress": site.prometheus.for_keda, "ignoreNullValues": "false"}
    triggers = [
        {
            "type": "prometheus",
            "name": each.name,
            "metricType": "AverageValue",
            "metadata": {**where, "query": each.query, "threshold": f"{each.target:g}"},
        }
        for each in signals(site, wanted)
    ]
    spec: Json = {
        "scaleTargetRef": {"apiVersion": ROLLOUTS.api_version, "kind": ROLLOUTS.kind, "name": site.name},
        "minReplicaCount": wanted.min_replicas,
        "maxReplicaCount": wanted.max_replicas,
        "pollingInterval": POLLING_SECONDS,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _BEHAVIOR}},
        "triggers": triggers,
    }
    return manifest(SCALED_OBJECTS, site.name, site, spec=spec)
