"""Nodes and the number of engines: where pods run, Karpenter's node pool, the autoscaler, placeholders in a warm pool.

The autoscaler is a ScaledObject of KEDA, or a HorizontalPodAutoscaler. Both rise fast and fall slowly, and both set
`replicas` of the Rollout, which gives the stable as many. A query without an answer leaves the number as it is: there
is no fallback that could take engines away while Prometheus is.

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

from rollouts.kube.model import Json
from rollouts.kube.resources import (
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    NODE_POOLS,
    PRIORITY_CLASSES,
    ROLLOUTS,
    SCALED_OBJECTS,
)
from rollouts.manifests.conventions import PLACEHOLDER, cluster_wide, warm_pool
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.nodes_spec import CPU, GPUS, CapacityType, KarpenterSpec
from rollouts.manifests.objects.strategy import seconds
from rollouts.manifests.pod_spec import AutoscaleSpec, Scaler, WarmPoolSpec
from tidegate.core.errors import UsageError
from tidegate.core.model import Value

SPOT = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
}
"""Labels of nodes that a cloud may take back."""

POOL = "tidegate.dev/pool"
"""Label of the nodes of a pool of ours."""


def gpu_labels(site: Site) -> dict[str, str]:
    """What a node with the engine's GPU is labelled with; nothing for a CPU.

    Raises:
        UsageError: nobody labels nodes with this GPU in this way.
    """
    accelerator, labeller = site.release.accelerator, site.fleet.nodes.gpu_labels
    if accelerator == CPU:
        return {}
    known = GPUS[accelerator].labels if accelerator in GPUS else {}
    if labeller not in known:
        hint = f"set fleet.nodes.gpu_labels to one of {', '.join(known)}" if known else f"one of {', '.join(GPUS)}"
        raise UsageError(f"no node is labelled with {accelerator} by {labeller}", hint=hint)
    return dict(known[labeller])


def gpu_amount(site: Site) -> dict[str, str]:
    """What a container asks for to get its GPUs."""
    gpu = GPUS.get(site.release.accelerator)
    return {gpu.resource: str(site.release.accelerators)} if gpu else {}


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
    capacity = (
        [CapacityType.SPOT, CapacityType.ON_DEMAND] if nodes.capacity is CapacityType.SPOT else [CapacityType.ON_DEMAND]
    )
    wanted = {**gpu_labels(site), **nodes.selector}
    requirements = [
        *({"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()),
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [str(each) for each in capacity]},
    ]
    template = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": karpenter.node_class},
        "requirements": requirements,
        "taints": [{"key": key, "effect": "NoSchedule"} for key in nodes.tolerates],
    }
    labels = {POOL: cluster_wide(site.fleet.namespace, site.name)}
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
        return {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": {"matchExpressions": [_expression(key, "In", value)]}}
                for key, value in SPOT.items()
            ]
        }
    # A node without the label is no spot node, and passes.
    never = [_expression(key, "NotIn", value) for key, value in SPOT.items()]  # codespell:ignore notin
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": never}]}}


def _expression(key: str, operator: str, value: str) -> Json:
    return {"key": key, "operator": operator, "values": [value]}


PLACEHOLDER_PRIORITY = -10
"""Below every pod that says nothing, and the lowest for which the cluster autoscaler still brings nodes."""


def priority_classes(site: Site) -> tuple[Json, ...]:
    """Of engines, and of placeholders where there are any."""
    engines = manifest(
        PRIORITY_CLASSES,
        f"{site.name}-engines",
        site,
        value=site.fleet.priority,
        description="Engines that serve users.",
    )
    if site.fleet.warm_pool is None:
        return (engines,)
    placeholders = manifest(
        PRIORITY_CLASSES,
        f"{site.name}-placeholders",
        site,
        value=PLACEHOLDER_PRIORITY,
        preemptionPolicy="Never",
        description="Pods that hold nodes with GPUs for engines.",
    )
    return engines, placeholders


def placeholders(site: Site, wanted: WarmPoolSpec) -> Json:
    """The Deployment. Its pods lack the label that engines are chosen by, or users' requests would reach them."""
    pod, mark = site.fleet.pod, {PLACEHOLDER: site.name}
    amount = {"cpu": pod.cpu, "memory": pod.memory, **gpu_amount(site)}
    limits = {"memory": pod.memory, **gpu_amount(site)}
    container: Json = {
        "name": "placeholder",
        "image": wanted.image,
        "resources": {"requests": amount, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
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
        "minReplicas": wanted.min_replicas,
        "maxReplicas": wanted.max_replicas,
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
