"""The part of `fleet` about nodes: where engines run, and how clouds label the nodes of each accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from pydantic import Field

from rollouts.manifests.fields import LabelKey, LabelText, ObjectName
from tidegate.core.model import SpecConflict, SpecModel


class GpuLabels(StrEnum):
    """Whose labels tell which GPU a node has."""

    OPERATOR = "gpu-operator"
    """`nvidia.com/gpu.product`, of NVIDIA's GPU feature discovery."""
    KARPENTER = "karpenter"
    """`karpenter.k8s.aws/instance-gpu-name`."""
    GKE = "gke"
    """`cloud.google.com/gke-accelerator`."""


class CapacityType(StrEnum):
    """How nodes are paid for."""

    ON_DEMAND = "on-demand"
    """Nodes that nobody takes away."""
    SPOT = "spot"
    """Cheaper nodes that the cloud may take back; on-demand ones where there are none."""


class Cloud(StrEnum):
    """Whose metadata server the engine asks whether its spot node is taken back."""

    AWS = "aws"
    GCP = "gcp"


class KarpenterSpec(SpecModel):
    """A node pool of the delivery's own, which Karpenter fills and empties."""

    node_class: ObjectName
    """The EC2NodeClass that is there already."""
    most_gpus: int = Field(ge=1)
    """Karpenter buys no more than these, whatever is asked."""


class NodesSpec(SpecModel):
    """Which nodes, besides having the GPUs that `engine.accelerator` and `accelerator_count` ask for."""

    gpu_labels: GpuLabels = GpuLabels.OPERATOR
    selector: Mapping[LabelKey, LabelText] = {}
    """Labels that a node must have in addition."""
    tolerates: tuple[LabelKey, ...] = ("nvidia.com/gpu",)
    """Keys of taints that keep other pods away from these nodes."""
    capacity: CapacityType = CapacityType.ON_DEMAND
    cloud: Cloud | None = None
    """With spot nodes, each engine asks this cloud's metadata server for its notice. Absent where a node termination
    handler drains nodes: then no engine reaches that server."""
    karpenter: KarpenterSpec | None = None
    accelerators: int | None = Field(default=None, ge=1, le=1024)
    """Accelerators of one of your nodes; as the largest machines that clouds have when absent."""

    @property
    def grow(self) -> bool:
        """Whether nodes are bought when pods find none: then what is on those that are there says little of room."""
        return self.karpenter is not None or self.gpu_labels is GpuLabels.KARPENTER

    @property
    def asks_for_notice(self) -> bool:
        """Whether engines themselves ask the cloud's metadata server when their node is taken back."""
        return self.capacity is CapacityType.SPOT and self.cloud is not None

    def contradictions(self) -> Iterator[SpecConflict]:
        """A node pool that makes other labels than the pods ask for, or of another cloud."""
        if self.karpenter and self.gpu_labels is not GpuLabels.KARPENTER:
            yield SpecConflict(
                ("gpu_labels",), f"{self.gpu_labels} with a node pool", "karpenter, which labels its nodes"
            )
        if self.karpenter and self.cloud is Cloud.GCP:
            yield SpecConflict(("karpenter",), "an EC2NodeClass on gcp", "cloud: aws, or node pools of GKE's own")


CPU = "cpu"
"""The accelerator that is no GPU: any node will do."""

GPU = "nvidia.com/gpu"
"""What a container asks for to get one."""


def _labels(product: str, karpenter: str, memory: str, gke: str) -> Mapping[GpuLabels, Mapping[str, str]]:
    of_karpenter = {"karpenter.k8s.aws/instance-gpu-name": karpenter}
    if memory:
        of_karpenter["karpenter.k8s.aws/instance-gpu-memory"] = memory
    found: dict[GpuLabels, Mapping[str, str]] = {
        GpuLabels.OPERATOR: {"nvidia.com/gpu.product": product},
        GpuLabels.KARPENTER: of_karpenter,
    }
    return found | ({GpuLabels.GKE: {"cloud.google.com/gke-accelerator": gke}} if gke else {})


GPUS: Mapping[str, Mapping[GpuLabels, Mapping[str, str]]] = {
    "nvidia-t4": _labels("Tesla-T4", "t4", "", "nvidia-tesla-t4"),
    "nvidia-l4": _labels("NVIDIA-L4", "l4", "", "nvidia-l4"),
    "nvidia-a10g": _labels("NVIDIA-A10G", "a10g", "", ""),
    "nvidia-l40s": _labels("NVIDIA-L40S", "l40s", "", ""),
    "nvidia-a100-40gb": _labels("NVIDIA-A100-SXM4-40GB", "a100", "40960", "nvidia-tesla-a100"),
    "nvidia-a100-80gb": _labels("NVIDIA-A100-SXM4-80GB", "a100", "81920", "nvidia-a100-80gb"),
    "nvidia-h100-80gb": _labels("NVIDIA-H100-80GB-HBM3", "h100", "", "nvidia-h100-80gb"),
    "nvidia-h200-141gb": _labels("NVIDIA-H200", "h200", "", "nvidia-h200-141gb"),
    "nvidia-b200": _labels("NVIDIA-B200", "b200", "", "nvidia-b200"),
}
"""Labels of a node that has it, by the name that `engine.accelerator` has, as each labeller says it; a labeller that is
missing never does. Products are as NVIDIA's GPU feature discovery writes the driver's name (`-` for spaces), GKE's and
Karpenter's as their documentation lists them."""

_MOST_IN_NODE = {"nvidia-a100-40gb": 16}
"""Of the largest machine that AWS, Google Cloud or Azure has with it (a2-megagpu-16g); 8 of all others: g4dn.metal,
g6.48xlarge, g5.48xlarge, g6e.48xlarge, p4de.24xlarge, p5.48xlarge, p5e.48xlarge and p6-b200.48xlarge."""


def more_than_a_node_has(nodes: NodesSpec, accelerator: str, count: int) -> SpecConflict | None:
    """A pod is on one node: no scheduler finds room for more than a node has.

    Args:
        nodes: the fleet's.
        accelerator: as the spec names it.
        count: of one engine.
    """
    most = nodes.accelerators or (_MOST_IN_NODE.get(accelerator, 8) if accelerator in GPUS else None)
    if most is None or count <= most:
        return None
    whose = "`fleet.nodes.accelerators` says" if nodes.accelerators else "the largest nodes of clouds have"
    more = "" if nodes.accelerators else "; `fleet.nodes.accelerators`, where yours have more"
    expected = f"at most {most}, as {whose}: an engine is one pod (docs/concepts/served.md){more}"
    return SpecConflict(("accelerator_count",), f"{count} of {accelerator} in one pod", expected)
