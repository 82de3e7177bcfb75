"""What simulated controllers need of a cluster: one in memory, or the mirror of a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from fakes.kube.simulated_time import Time
from fakes.kube.store import Event

from rollouts.kube.model import Json, Resource


class Cluster(Protocol):
    """Every answer is a copy of its own; every write that is not taken raises `Refusal`.

    Kept by `fakes.kube.cluster.FakeCluster` and by `fakes.argo.mirror.Mirror`.
    """

    @property
    def time(self) -> Time: ...

    def existing(self) -> Iterable[Event]:
        """Everything that is there, as if it had just come."""
        ...

    def on_change(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Be told of every change from now on; the answer ends it."""
        ...

    def find(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None: ...

    def list(self, resource: Resource, *, namespace: str | None = None) -> list[Json]: ...

    def create(self, resource: Resource, body: Json, *, manager: str, dry_run: bool = False) -> Json: ...

    def update(self, resource: Resource, body: Json, *, manager: str) -> Json: ...

    def update_status(self, resource: Resource, body: Json, *, manager: str) -> Json: ...

    def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json: ...
