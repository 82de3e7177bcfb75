"""The part of `fleet` about nodes: where engines run, and how clouds label the nodes of each accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from pydantic import Field

from rollouts.manifests.fields import LabelKey, LabelText, ObjectName
from tidegate.core.model import SpecConflict, SpecModel, Value


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

    def contradictions(self) -> Iterator[SpecConflict]:
        """A node pool that makes other labels than the pods ask for, or of another cloud."""
        if self.karpenter and self.gpu_labels is not GpuLabels.KARPENTER:
            yield SpecConflict(
                ("gpu_labels",), f"{self.gpu_labels} with a node pool", "karpenter, which labels its nodes"
            )
        if self.karpenter and self.cloud is Cloud.GCP:
            yield SpecConflict(("karpenter",), "an EC2NodeClass on gcp", "cloud: aws, or node pools of GKE's own")


def asks_for_notice(nodes: NodesSpec) -> bool:
    """Whether engines themselves ask the cloud's metadata server when their node is taken back."""
    return nodes.capacity is CapacityType.SPOT and nodes.cloud is not None


CPU = "cpu"
"""The accelerator that is no GPU: any node will do."""

_PRODUCT = "nvidia.com/gpu.product"
_KARPENTER = "karpenter.k8s.aws/instance-gpu-name"
_KARPENTER_MEMORY = "karpenter.k8s.aws/instance-gpu-memory"
_GKE = "cloud.google.com/gke-accelerator"


GPU = "nvidia.com/gpu"
"""What a container asks for to get one."""


class Gpu(Value):
    """One accelerator as nodes know it."""

    labels: Mapping[GpuLabels, Mapping[str, str]]
    """Of a node that has it, as each labeller says it; a labeller that is missing never does."""
    most_in_node: int = 8
    """Of the largest machines that AWS, Google Cloud and Azure have with it: g4dn.metal, g6.48xlarge, g5.48xlarge,
    g6e.48xlarge, p4de.24xlarge, p5.48xlarge, p5e.48xlarge and p6-b200.48xlarge."""


def _gpu(product: str, *, karpenter: Mapping[str, str] | None = None, gke: str = "", most_in_node: int = 8) -> Gpu:
    labels: dict[GpuLabels, Mapping[str, str]] = {GpuLabels.OPERATOR: {_PRODUCT: product}}
    if karpenter:
        labels[GpuLabels.KARPENTER] = karpenter
    if gke:
        labels[GpuLabels.GKE] = {_GKE: gke}
    return Gpu(labels=labels, most_in_node=most_in_node)


GPUS: Mapping[str, Gpu] = {
    "nvidia-t4": _gpu("Tesla-T4", karpenter={_KARPENTER: "t4"}, gke="nvidia-tesla-t4"),
    "nvidia-l4": _gpu("NVIDIA-L4", karpenter={_KARPENTER: "l4"}, gke="nvidia-l4"),
    "nvidia-a10g": _gpu("NVIDIA-A10G", karpenter={_KARPENTER: "a10g"}),
    "nvidia-l40s": _gpu("NVIDIA-L40S", karpenter={_KARPENTER: "l40s"}),
    "nvidia-a100-40gb": _gpu(
        "NVIDIA-A100-SXM4-40GB",
        karpenter={_KARPENTER: "a100", _KARPENTER_MEMORY: "40960"},
        gke="nvidia-tesla-a100",
        most_in_node=16,  # a2-megagpu-16g
    ),
    "nvidia-a100-80gb": _gpu(
        "NVIDIA-A100-SXM4-80GB", karpenter={_KARPENTER: "a100", _KARPENTER_MEMORY: "81920"}, gke="nvidia-a100-80gb"
    ),
    "nvidia-h100-80gb": _gpu("NVIDIA-H100-80GB-HBM3", karpenter={_KARPENTER: "h100"}, gke="nvidia-h100-80gb"),
    "nvidia-h200-141gb": _gpu("NVIDIA-H200", karpenter={_KARPENTER: "h200"}, gke="nvidia-h200-141gb"),
    "nvidia-b200": _gpu("NVIDIA-B200", karpenter={_KARPENTER: "b200"}, gke="nvidia-b200"),
}
"""By the name that `engine.accelerator` has. Products are as NVIDIA's GPU feature discovery writes the driver's name
(`-` for spaces), GKE's and Karpenter's as their documentation lists them."""


def more_than_a_node_has(nodes: NodesSpec, accelerator: str, count: int) -> SpecConflict | None:
    """A pod is on one node: no scheduler finds room for more than a node has.

    Args:
        nodes: the fleet's.
        accelerator: as the spec names it.
        count: of one engine.
    """
    known = GPUS.get(accelerator)
    most = nodes.accelerators or (known.most_in_node if known else None)
    if most is None or count <= most:
        return None
    whose = "`fleet.nodes.accelerators` says" if nodes.accelerators else "the largest nodes of clouds have"
    more = "" if nodes.accelerators else "; `fleet.nodes.accelerators`, where yours have more"
    expected = f"at most {most}, as {whose}: an engine is one pod (docs/concepts/served.md){more}"
    return SpecConflict(("accelerator_count",), f"{count} of {accelerator} in one pod", expected)


def labellers_of(accelerator: str) -> tuple[GpuLabels, ...]:
    """Who labels nodes with it; nobody for a CPU."""
    return tuple(GPUS[accelerator].labels) if accelerator in GPUS else ()
