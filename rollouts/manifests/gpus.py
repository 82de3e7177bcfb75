"""How clouds and operators label the nodes of each accelerator, and what a pod asks for to get one."""

from __future__ import annotations

from collections.abc import Mapping

from rollouts.manifests.nodes_spec import GpuLabels
from tidegate.core.model import Value

CPU = "cpu"
"""The accelerator that is no GPU: any node will do."""

_PRODUCT = "nvidia.com/gpu.product"
_AMD = "amd.com/gpu.product-name"
_KARPENTER = "karpenter.k8s.aws/instance-gpu-name"
_KARPENTER_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"
_GKE = "cloud.google.com/gke-accelerator"


class Gpu(Value):
    """One accelerator as nodes know it."""

    resource: str = "nvidia.com/gpu"
    """What a container asks for."""
    labels: Mapping[GpuLabels, Mapping[str, str]]
    """Of a node that has it, as each labeller says it; a labeller that is missing never does."""


def _gpu(product: str, *, karpenter: Mapping[str, str] | None = None, gke: str = "") -> Gpu:
    labels: dict[GpuLabels, Mapping[str, str]] = {GpuLabels.OPERATOR: {_PRODUCT: product}}
    if karpenter:
        labels[GpuLabels.KARPENTER] = karpenter
    if gke:
        labels[GpuLabels.GKE] = {_GKE: gke}
    return Gpu(labels=labels)


GPUS: Mapping[str, Gpu] = {
    "nvidia-t4": _gpu("Tesla-T4", karpenter={_KARPENTER: "t4"}, gke="nvidia-tesla-t4"),
    "nvidia-l4": _gpu("NVIDIA-L4", karpenter={_KARPENTER: "l4"}, gke="nvidia-l4"),
    "nvidia-a10g": _gpu("NVIDIA-A10G", karpenter={_KARPENTER: "a10g"}),
    "nvidia-l40s": _gpu("NVIDIA-L40S", karpenter={_KARPENTER: "l40s"}),
    "nvidia-a100-40gb": _gpu(
        "NVIDIA-A100-SXM4-40GB", karpenter={_KARPENTER: "a100", _KARPENTER_MEMORY: "40960"}, gke="nvidia-tesla-a100"
    ),
    "nvidia-a100-80gb": _gpu(
        "NVIDIA-A100-SXM4-80GB", karpenter={_KARPENTER: "a100", _KARPENTER_MEMORY: "81920"}, gke="nvidia-a100-80gb"
    ),
    "nvidia-h100-80gb": _gpu("NVIDIA-H100-80GB-HBM3", karpenter={_KARPENTER: "h100"}, gke="nvidia-h100-80gb"),
    "nvidia-h200-141gb": _gpu("NVIDIA-H200", karpenter={_KARPENTER: "h200"}, gke="nvidia-h200-141gb"),
    "nvidia-b200": _gpu("NVIDIA-B200", karpenter={_KARPENTER: "b200"}, gke="nvidia-b200"),
    "amd-mi300x": Gpu(resource="amd.com/gpu", labels={GpuLabels.OPERATOR: {_AMD: "AMD_Instinct_MI300X_OAM"}}),
}
"""By the name that `engine.accelerator` has. Products are as NVIDIA's GPU feature discovery writes the driver's name
(`-` for spaces), GKE's and Karpenter's as their documentation lists them."""


def labellers_of(accelerator: str) -> tuple[GpuLabels, ...]:
    """Who labels nodes with it; nobody for a CPU."""
    return tuple(GPUS[accelerator].labels) if accelerator in GPUS else ()
