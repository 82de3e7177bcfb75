"""The parts of `fleet` about pods and nodes: what a pod gets, how many there are, where they run, and the guard's pod.

And types of its fields: how a person writes what Kubernetes has names and amounts for.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.units import Duration, Percent, format_duration


def _block(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError("a block of addresses such as 10.20.0.0/16") from None


ObjectName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
"""Name of an object or a namespace."""

Host = Annotated[str, Field(pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")]
"""Name under which users reach a gateway; `*.` stands for one name before the others."""

Bytes = Annotated[str, Field(pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$")]
"""Memory or disk, such as 64Gi."""


def _size(text: Bytes) -> int:
    """In MiB."""
    return int(text[:-2]) * {"Mi": 1, "Gi": 1 << 10, "Ti": 1 << 20}[text[-2:]]


Cores = Annotated[str, Field(pattern=r"^([1-9][0-9]*m?|[0-9]+\.[0-9]{1,3})$")]
"""Processors, such as 8 or 500m."""

LabelKey = Annotated[
    str, Field(pattern=r"^([a-z0-9][-a-z0-9.]{0,251}[a-z0-9]/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
]
LabelText = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")]

Block = Annotated[str, AfterValidator(_block)]
"""Addresses such as 10.20.0.0/16."""


def host_in(url: str) -> str:
    """The name in an address; empty when it is a number, by which no gateway chooses a route."""
    host = urlsplit(url).hostname or ""
    return "" if re.fullmatch(r"[\d.]+|.*:.*", host) else host


def whole_seconds(length: timedelta) -> int:
    """As Kubernetes and Argo Rollouts take a `Duration`; never 0 of something, which often means never."""
    return math.ceil(length.total_seconds())


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

_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")


def pinned(image: str) -> str:
    """The image, when it is named by digest.

    Raises:
        ValueError: it may be another one tomorrow.
    """
    if not _DIGEST.fullmatch(image):
        raise at_odds(f"{image}, which may be another image tomorrow", "REGISTRY/REPOSITORY@sha256:DIGEST")
    return image


PinnedImage = Annotated[str, AfterValidator(pinned)]
"""An image by digest."""


class CacheSpec(SpecModel):
    """Where weights that no image holds are kept; engines that start together wait for the one that pulls."""

    size: Bytes = "200Gi"
    claim: ObjectName | None = None
    """A volume claim that many nodes may mount: a container that only pulls writes there, engines read; each pod has a
    folder of its own when absent."""
    secret: ObjectName | None = None
    """A Secret with the key `token`: the artifact store's bearer token. It is named here, never written."""


NODE_WITHIN = timedelta(minutes=5)
"""How long it may take until a node is there and has the image."""


class PodSpec(SpecModel):
    """One engine's pod."""

    cpu: Cores = "8"
    memory: Bytes = "64Gi"
    shared_memory: Bytes = "16Gi"
    """`/dev/shm`, over which the processes of a parallel engine talk; part of `memory`."""
    cache: CacheSpec = CacheSpec()
    start_within: Duration = Field(default=timedelta(minutes=30), gt=timedelta(0))
    """From the container's begin to the first answer: pulling and loading weights takes most of it."""
    drain: Duration = Field(default=timedelta(minutes=2), gt=timedelta(0))
    """For open answers at the end; those that take longer are cut with an error."""
    linger: Duration = timedelta(seconds=5)
    """Of the drain: how long new requests are still taken, until every gateway knows."""
    python: str = Field(default="python3", pattern=r"^\S+$")
    """Of the engine environment in the image; it starts what brings weights and ends."""
    user: int = Field(default=10001, ge=1)
    """Number of the user that the engine runs as."""
    service_account: ObjectName | None = None
    """One of yours, such as one with workload identity; the delivery's own when absent, which may do nothing. Engines
    get no token of either."""
    pull_secrets: tuple[ObjectName, ...] = ()

    @property
    def ready_within(self) -> timedelta:
        """From being asked for to the first answer: a node has to be there before the container begins."""
        return NODE_WITHIN + self.start_within

    def contradictions(self) -> Iterator[SpecConflict]:
        """A drain without time for answers, shared memory that leaves none."""
        if self.linger >= self.drain:
            yield SpecConflict(
                ("linger",), format_duration(self.linger), f"less than `drain`, which is {format_duration(self.drain)}"
            )
        if _size(self.shared_memory) >= _size(self.memory):
            expected = f"less than `memory`, which is {self.memory} and includes it"
            yield SpecConflict(("shared_memory",), self.shared_memory, expected)


class AutoscaleSpec(SpecModel):
    """As many engines as the signals ask for, by KEDA; the signal that asks for most counts."""

    min_replicas: int = Field(ge=1)
    """Never fewer engines."""
    max_replicas: int = Field(ge=1)
    """Never more; the canary comes on top."""
    waiting: float | None = Field(default=4.0, gt=0)
    """Requests that wait, for each engine."""
    kv_cache: Percent | None = Field(default=0.75, gt=0, lt=1, validate_default=False)
    """Share of the KV cache in use, on average over engines."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Bounds that leave nothing, no signal at all."""
        least, most = self.min_replicas, self.max_replicas
        if least > most:
            yield SpecConflict(("min_replicas",), str(least), f"at most `max_replicas`, which is {most}")
        if self.waiting is None and self.kv_cache is None:
            yield SpecConflict(("waiting",), "no signal", "at least one of waiting, kv_cache")


class WarmPoolSpec(SpecModel):
    """Placeholder pods that hold nodes with GPUs, and make room the moment that an engine needs theirs."""

    share: Percent = Field(default=0.15, gt=0, le=1, validate_default=False)
    """Of the region's engines; rounded up."""
    image: str = Field(default="registry.k8s.io/pause:3.10", pattern=r"^\S+$")
    """Any image that does nothing."""


class GuardSpec(SpecModel):
    """One pod in each region, of the set-up: `tidegate rollout guard`."""

    image: PinnedImage | None = None
    """An image with tidegate in it, as tidegate's Containerfile makes it; that of the spec's `workflow` when absent,
    and no guard where there is none either."""
