"""What every simulated controller has around it: the cluster, the time, the events, and what is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

from fakes.argo.index import Index
from fakes.argo.objects import safe_hash, stamp
from fakes.argo.ports import Cluster
from fakes.kube.refusal import Refusal

from rollouts.kube.model import EVERYWHERE, Json, Resource
from rollouts.kube.resources import EVENTS, resource_of

MANAGER = "rollouts-controller"
"""The field manager of what the simulated controllers write."""


class World:
    """One cluster as its controllers see it."""

    def __init__(self, cluster: Cluster, wake: Callable[[datetime], None]) -> None:
        self.cluster = cluster
        self.index = Index(cluster)
        self.wake = wake
        """Reconcile again at that time (`enqueueRolloutAfter`)."""
        self.plugin_broken = False
        self.mirrors = True
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

    def event(
        self, about: Json, reason: str, message: str, *, warning: bool = False, source: str = "rollouts-controller"
    ) -> None:
        """Record a Kubernetes event, or count it up when it was told before (`utils/record/record.go`)."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace", "default")
        name = f"{metadata['name']}.{safe_hash([metadata.get('uid'), reason, message])}"
        now = stamp(self.now())
        known = self.find(EVENTS, name, namespace)
        if known is not None:
            self.update(known | {"count": known["count"] + 1, "lastTimestamp": now})
            return
        involved = {"apiVersion": about["apiVersion"], "kind": about["kind"], "namespace": namespace}
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": involved | {key: metadata[key] for key in ("name", "uid") if key in metadata},
                "reason": reason,
                "message": message,
                "type": "Warning" if warning else "Normal",
                "source": {"component": source},
                "reportingComponent": source,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
        )
