"""The parts of `fleet` about pods: what an engine's pod gets, how many there are, and the pod of the region's guard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from rollouts.kube.scheduling import parse_quantity
from rollouts.manifests.fields import Bytes, Cores, ObjectName
from tidegate.core.model import SpecConflict, SpecModel, at_odds
from tidegate.core.units import Duration, Percent, format_duration

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
    """Of the engine environment in the image; the preStop hook starts it."""
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
        if parse_quantity(self.shared_memory) >= parse_quantity(self.memory):
            expected = f"less than `memory`, which is {self.memory} and includes it"
            yield SpecConflict(("shared_memory",), self.shared_memory, expected)


LONGEST_WINDOW = timedelta(hours=1)
"""The API server refuses a longer `stabilizationWindowSeconds`."""


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
    ttft: Duration | None = Field(default=None, gt=timedelta(0))
    """Time to first token at the 95th percentile."""
    up_after: Duration = timedelta(seconds=30)
    """How long more has to be wanted before it is given."""
    down_after: Duration = timedelta(minutes=15)
    """How long less has to be wanted: an engine that goes takes minutes to come back."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Bounds that leave nothing, no signal at all, engines that come and go, windows that Kubernetes refuses."""
        if self.min_replicas > self.max_replicas:
            yield SpecConflict(
                ("min_replicas",), str(self.min_replicas), f"at most `max_replicas`, which is {self.max_replicas}"
            )
        if self.waiting is None and self.kv_cache is None and self.ttft is None:
            yield SpecConflict(("waiting",), "no signal", "at least one of waiting, kv_cache, ttft")
        if self.down_after <= self.up_after:
            found = f"{format_duration(self.down_after)}, as soon as up"
            yield SpecConflict(
                ("down_after",), found, f"more than `up_after`, which is {format_duration(self.up_after)}"
            )
        for name, window in {"up_after": self.up_after, "down_after": self.down_after}.items():
            if window > LONGEST_WINDOW:
                yield SpecConflict((name,), format_duration(window), "at most 1h")


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
    cpu: Cores = "20m"
    memory: Bytes = "192Mi"
