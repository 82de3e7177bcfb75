"""The part of `fleet` that says what an engine's pod gets, how long it may take to start and to end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from pydantic import Field

from rollouts.manifests.written import Bytes, Cores, LabelKey, LabelText, ObjectName, bytes_of
from tidegate.core.model import Contradiction, SpecModel
from tidegate.core.quantities import Duration, format_duration


class CacheSpec(SpecModel):
    """Where weights that no image holds are kept; engines that start together wait for the one that pulls."""

    size: Bytes = "200Gi"
    claim: ObjectName | None = None
    """A volume claim that many nodes may mount: a container that only pulls writes there, engines read; each pod has a
    folder of its own when absent."""
    secret: ObjectName | None = None
    """A Secret with the key `token`: the artifact store's bearer token. It is named here, never written."""


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
    pull_secrets: tuple[ObjectName, ...] = ()
    labels: Mapping[LabelKey, LabelText] = {}
    """More labels for the pods."""

    def contradictions(self) -> Iterator[Contradiction]:
        """A drain without time for answers, and labels that are not for people to set."""
        if self.linger >= self.drain:
            yield Contradiction(
                ("linger",), format_duration(self.linger), f"less than `drain`, which is {format_duration(self.drain)}"
            )
        if bytes_of(self.shared_memory) >= bytes_of(self.memory):
            expected = f"less than `memory`, which is {self.memory} and includes it"
            yield Contradiction(("shared_memory",), self.shared_memory, expected)
        for key in self.labels:
            if key.startswith("tidegate.dev/") or key.startswith("rollouts-pod-template-hash"):
                yield Contradiction(("labels", key), "a label that selectors rely on", "a label of your own")
