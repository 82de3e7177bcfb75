"""Where pods run: what engines, placeholders and builds ask of a node, and Karpenter's node pool."""

from __future__ import annotations

from collections.abc import Mapping

from rollouts.kube.resources import NODE_POOLS
from rollouts.manifests.conventions import cluster_wide
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.nodes_spec import CPU, GPU, GPUS, CapacityType, KarpenterSpec
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
    return {GPU: str(site.release.accelerators_each)} if site.release.accelerator in GPUS else {}


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
