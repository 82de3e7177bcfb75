"""The part of `fleet` that says on which nodes engines run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from pydantic import Field

from rollouts.manifests.written import LabelKey, LabelText, ObjectName
from tidegate.core.model import Contradiction, SpecModel


class GpuLabels(StrEnum):
    """Whose labels tell which GPU a node has."""

    OPERATOR = "gpu-operator"
    """`nvidia.com/gpu.product`, of NVIDIA's GPU feature discovery; `amd.com/gpu.product-name` of AMD's labeller."""
    KARPENTER = "karpenter"
    """`karpenter.k8s.aws/instance-gpu-name`."""
    GKE = "gke"
    """`cloud.google.com/gke-accelerator`."""


class Capacity(StrEnum):
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
    """Which nodes, beside having the GPUs that `engine.accelerator` and `accelerator_count` ask for."""

    gpu_labels: GpuLabels = GpuLabels.OPERATOR
    selector: Mapping[LabelKey, LabelText] = {}
    """Labels that a node must have in addition."""
    tolerates: tuple[LabelKey, ...] = ("nvidia.com/gpu",)
    """Keys of taints that keep other pods away from these nodes."""
    capacity: Capacity = Capacity.ON_DEMAND
    cloud: Cloud | None = None
    """With spot nodes, each engine asks this cloud's metadata server for its notice. Absent where a node termination
    handler drains nodes: then no engine reaches that server."""
    karpenter: KarpenterSpec | None = None

    def contradictions(self) -> Iterator[Contradiction]:
        """A node pool that makes other labels than the pods ask for, or of another cloud."""
        if self.karpenter and self.gpu_labels is not GpuLabels.KARPENTER:
            yield Contradiction(
                ("gpu_labels",), f"{self.gpu_labels} with a node pool", "karpenter, which labels its nodes"
            )
        if self.karpenter and self.cloud is Cloud.GCP:
            yield Contradiction(("karpenter",), "an EC2NodeClass on gcp", "cloud: aws, or node pools of GKE's own")


def asks_for_notice(nodes: NodesSpec) -> bool:
    """Whether engines themselves ask the cloud's metadata server when their node is taken back."""
    return nodes.capacity is Capacity.SPOT and nodes.cloud is not None
