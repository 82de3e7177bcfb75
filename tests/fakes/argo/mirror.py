"""A real cluster as the simulated controllers see it: what they follow is known here, all else is asked.

What client-go's informers and `expectations` are to a controller. What is followed is listed between two
reconciliations and read without asking; what was written is known at once, so that nobody acts on what was there
before. Routes and ConfigMaps are read from the API server each time, as the Gateway API plugin does
(`pkg/plugin/httproute.go`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fakes.clock import RealTime, Time
from fakes.kube.refusal import Refusal
from fakes.kube.store import Event, copied

from rollouts.errors import ApiError, FleetError
from rollouts.kube.resources import PODS, REPLICA_SETS, PatchKind, Request, Resource
from tidegate.core.model import Json

Place = tuple[str, str]
"""Namespace and name."""


class Mirror:
    """Implements `fakes.argo.world.Cluster`."""

    def __init__(self, followed: Iterable[Resource], *, ask: Callable[[Request], Json]) -> None:
        """`ask` sends a request and waits for the answer, or raises the errors of `rollouts.errors`."""
        self.time: Time = RealTime()
        self._ask = ask
        self._known: dict[Resource, dict[Place, Json]] = {resource: {} for resource in followed}
        self._read: dict[tuple[Resource, Place], Json] = {}
        """What is not followed, as it was read last."""
        self._listeners: list[Callable[[Event], None]] = []

    def look(self, resource: Resource, namespace: str, labels: str) -> bool:
        """List a kind; whether anything is different from what is known. One that is not served has nothing.

        Raises:
            Refusal: it could not be listed.
        """
        try:
            listed = self._asked(
                Request("GET", resource, namespace=namespace, query={"labelSelector": labels} if labels else {})
            )
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            listed = {"items": []}
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        now = {_place(body): kind | body for body in listed["items"]}
        known = self._known[resource]
        changed = [body for place, body in now.items() if place not in known or _version(known[place]) < _version(body)]
        gone = [known.pop(place) for place in known.keys() - now.keys()]
        for body in gone:
            self._say(resource, "DELETED", body, body)
        for body in changed:
            self._put(resource, body)
        return bool(gone or changed)

    def existing(self) -> Iterator[Event]:
        for resource, found in self._known.items():
            for body in tuple(found.values()):
                yield Event(resource, "ADDED", None, body, _version(body))

    def on_change(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def find(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        """
        Raises:
            Refusal: it is not followed, and could not be read.
        """
        place = (namespace or "") if resource.namespaced else "", name
        if resource in self._known:
            return copied(self._known[resource].get(place))
        try:
            found = self._asked(Request("GET", resource, name, place[0] or None))
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            return None
        self._read[resource, place] = found
        return copied(found)

    def list(self, resource: Resource, *, namespace: str | None = None) -> list[Json]:
        """All of a kind that is followed, by namespace and name; without a namespace, of all of them."""
        found = sorted(self._known.get(resource, {}).items())
        return [copied(body) for (where, _), body in found if not namespace or where == namespace]

    def create(self, resource: Resource, body: Json, *, manager: str, dry_run: bool = False) -> Json:
        query, (namespace, _) = {"fieldManager": manager} | ({"dryRun": "All"} if dry_run else {}), _place(body)
        answer = self._asked(Request("POST", resource, namespace=namespace or None, body=body, query=query))
        return answer if dry_run else self._stored(resource, answer)

    def update(self, resource: Resource, body: Json, *, manager: str) -> Json:
        """The whole object; of a ReplicaSet or a pod what changed, since others write their status all the time.

        Upstream patches them after a conflict (`rollout/sync.go`, `updateReplicaSetFallbackToPatch`).
        """
        before = self._before(resource, body)
        if before == body:
            return body  # as an API server: a write that changes nothing makes no version
        if resource in (REPLICA_SETS, PODS) and before is not None:
            return self._patch(resource, body, difference(before, body), manager)
        (namespace, name), query = _place(body), {"fieldManager": manager}
        answer = self._asked(Request("PUT", resource, name, namespace or None, body=body, query=query))
        return self._stored(resource, answer)

    def update_status(self, resource: Resource, body: Json, *, manager: str) -> Json:
        """What changed of it, without a version: a user's word of the same moment stays (`patchRolloutStatus`)."""
        before = self._before(resource, body) or {}
        changes = difference(before.get("status") or {}, body["status"])
        return self._patch(resource, body, {"status": changes}, manager, subresource="status")

    def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One that is gone already is no error; the next look tells the rest."""
        try:
            return self._asked(Request("DELETE", resource, name, namespace, query={"propagationPolicy": "Background"}))
        except Refusal as refusal:
            if refusal.code != 404:
                raise
            return {}

    def _before(self, resource: Resource, body: Json) -> Json | None:
        place = _place(body)
        return self._known.get(resource, {}).get(place) or self._read.get((resource, place))

    def _patch(self, resource: Resource, body: Json, changes: Json, manager: str, *, subresource: str = "") -> Json:
        namespace, name = _place(body)
        kind, query = PatchKind.MERGE, {"fieldManager": manager}
        request = Request("PATCH", resource, name, namespace, subresource, patch=kind, body=changes, query=query)
        try:
            return self._stored(resource, self._asked(request))
        except Refusal as refusal:
            if refusal.code != 404 or resource != PODS:
                raise
            return body  # a pod that ended needs no labels

    def _stored(self, resource: Resource, answer: Json) -> Json:
        if resource in self._known:
            self._put(resource, answer)
        else:
            self._read[resource, _place(answer)] = answer
        return copied(answer)

    def _put(self, resource: Resource, body: Json) -> None:
        before = self._known[resource].get(_place(body))
        if before is not None and _version(before) == _version(body):
            return
        self._known[resource][_place(body)] = body
        self._say(resource, "MODIFIED" if before else "ADDED", before, body)

    def _say(self, resource: Resource, change: str, before: Json | None, after: Json) -> None:
        event = Event(resource, change, before, after, _version(after))
        for listener in tuple(self._listeners):
            listener(event)

    def _asked(self, request: Request) -> Json:
        try:
            return self._ask(request)
        except ApiError as error:
            raise Refusal(error.status, error.reason, error.message) from error
        except FleetError as error:
            raise Refusal(503, "ServiceUnavailable", error.message) from error


def difference(old: Json, new: Json) -> Json:
    """The merge patch (RFC 7386) that makes the one of the other."""
    changes: Json = dict.fromkeys(set(old) - set(new))
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := difference(before, value):
                changes[key] = inner
        elif key not in old or before != value:
            changes[key] = value
    return changes


def _place(body: Json) -> Place:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _version(body: Json) -> int:
    """Versions are whole numbers that grow: promised since Kubernetes 1.35, and so since etcd 3."""
    return int(body["metadata"]["resourceVersion"])
