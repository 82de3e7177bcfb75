"""What every simulated controller has around it: the cluster, the time, what belongs to whom, what is next.

Upstream: client-go's informers and `util/workqueue`, without threads, without indexes and without limits.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from fakes.argo.objects import controller_of
from fakes.clock import Time
from fakes.kube.refusal import Refusal
from fakes.kube.store import Event

from rollouts.kube.resources import EVERYWHERE, Resource, resource_of
from tidegate.core.model import Json


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


MANAGER = "rollouts-controller"
"""The field manager of what the simulated controllers write."""


class World:
    """One cluster as its controllers see it."""

    def __init__(self, cluster: Cluster, wake: Callable[[datetime], None]) -> None:
        self.cluster = cluster
        self.wake = wake
        """Reconcile again at that time (`enqueueRolloutAfter`)."""
        self.plugin_broken = False
        self._stored: dict[str, Json] = {}
        """By what was asked: an API server's defaults stay as they are."""

    def now(self) -> datetime:
        return self.cluster.time.now()

    def find(self, resource: Resource, name: str, namespace: str) -> Json | None:
        """None also where the kind is not served: its definition is not installed."""
        try:
            return self.cluster.find(resource, name, namespace=namespace)
        except Refusal:
            return None

    def everywhere(self, resource: Resource) -> list[Json]:
        """All of a kind, in all namespaces."""
        try:
            return self.cluster.list(resource, namespace=EVERYWHERE)
        except Refusal:
            return []

    def owned(self, resource: Resource, owner: Json) -> list[Json]:
        """All of a kind that this object controls, by name."""
        found, uid = self.cluster.list(resource, namespace=owner["metadata"]["namespace"]), owner["metadata"]["uid"]
        return [one for one in found if (controller := controller_of(one)) is not None and controller["uid"] == uid]

    def as_stored(self, body: Json) -> Json | None:
        """What a new object would be with the API server's defaults; None where it would be refused."""
        asked = json.dumps(body, sort_keys=True)
        if asked not in self._stored:
            try:
                self._stored[asked] = self.cluster.create(resource_of(body), body, manager=MANAGER, dry_run=True)
            except Refusal:
                return None
        return self._stored[asked]

    def create(self, body: Json) -> Json:
        return self.cluster.create(resource_of(body), body, manager=MANAGER)

    def update(self, body: Json) -> Json:
        """Everything but a status that has a subresource."""
        return self.cluster.update(resource_of(body), body, manager=MANAGER)

    def report(self, body: Json, status: Json) -> Json:
        """Write the status, if it is another one."""
        if body.get("status") == status:
            return body
        return self.cluster.update_status(resource_of(body), body | {"status": status}, manager=MANAGER)

    def delete(self, body: Json) -> None:
        metadata = body["metadata"]
        self.cluster.delete(resource_of(body), metadata["name"], namespace=metadata.get("namespace"))


Key = tuple[str, str, str]
"""Plural, namespace, name."""


class WorkQueue:
    """Each object once, in the order in which something was first said of it."""

    def __init__(self) -> None:
        self._now: dict[Key, None] = {}
        self._later: list[tuple[datetime, Key]] = []
        self._known: set[tuple[datetime, Key]] = set()

    def __bool__(self) -> bool:
        """Whether there is work now."""
        return bool(self._now)

    @property
    def due(self) -> datetime | None:
        """When there will be work, as far as that is known."""
        return self._later[0][0] if self._later else None

    def add(self, key: Key) -> None:
        self._now[key] = None

    def add_at(self, moment: datetime, key: Key) -> bool:
        """Whether that is news."""
        if (moment, key) in self._known:
            return False
        self._known.add((moment, key))
        heapq.heappush(self._later, (moment, key))
        return True

    def take(self, now: datetime) -> Key | None:
        """The next, with what is due by now; None when there is nothing to do."""
        while self._later and self._later[0][0] <= now:
            due = heapq.heappop(self._later)
            self._known.discard(due)
            self.add(due[1])
        if not self._now:
            return None
        key = next(iter(self._now))
        del self._now[key]
        return key
