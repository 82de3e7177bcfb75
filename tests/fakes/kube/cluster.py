"""A Kubernetes cluster's API server in memory: what it stores, accepts, refuses and tells.

Controllers (simulated ones too) use it as plain Python; clients reach it through `fakes.kube.server`, in process or
over a socket, where who asks, faults and access come in. Patches are merge patches (RFC 7386) and JSON patches
(RFC 6902), over JSON as the API server reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jsonpatch
from fakes.clock import SimulatedTime, Time
from fakes.kube import reads, writes
from fakes.kube.refusal import Refusal, no_such_path
from fakes.kube.store import KINDS, Event, Kind, Store, copied, copied_from_store
from fakes.kube.writes import CONTROLLER, How, Writes
from jsonpointer import JsonPointerException

from rollouts.kube.model import PatchKind, Resource
from tidegate.core.model import Json


def merged(target: Any, patch: Any) -> Any:
    """`target` with an RFC 7386 patch: null removes a key, a list replaces the whole list."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patched(target: Json, operations: Sequence[Json]) -> Any:
    """`target` with RFC 6902 operations.

    Raises:
        Refusal: an operation does not fit, or its test does not hold: 422, as the API server's patch handler.
    """
    try:
        return jsonpatch.apply_patch(copied(target), list(operations), in_place=True)
    except (jsonpatch.JsonPatchException, JsonPointerException) as error:
        raise Refusal(422, "Invalid", f"the server rejected our request due to an error in it: {error}") from error


@dataclass(frozen=True)
class Kept:
    """All that is in a cluster at one moment."""

    objects: tuple[tuple[Kind, Json], ...]
    version: int
    ids: int
    """How many were given so far."""


class FakeCluster:
    """One cluster. Every write obeys the API conventions; every answer is a copy of its own.

    All times in it come from `time`, all versions from one counter and all ids from another, so that the same calls
    give the same cluster.
    """

    def __init__(
        self,
        name: str = "eu-west-1",
        *,
        namespace: str = "default",
        time: Time | None = None,
    ) -> None:
        self.name = name
        self.namespace = namespace
        """Where objects are that name none."""
        self.time: Time = time or SimulatedTime()
        self.store = Store()
        self._kinds = {kind.key: kind for kind in KINDS}
        self._writes = Writes(self.store, self.time, self._kinds)
        self.admission = self._writes.admission
        for each in dict.fromkeys(("default", "kube-system", namespace)):
            self.create_namespace(each)

    def kept(self) -> Kept:
        """What is there now, for another cluster to begin with."""
        kinds = self._kinds
        objects = tuple((kinds[key], body) for key, body in self.store.everything())
        return Kept(objects, self.store.version, self._writes.ids)

    def begin_with(self, kept: Kept) -> None:
        """Be as another cluster was; nobody is told."""
        self.store.fill(kept.objects, kept.version)
        self._writes.ids = kept.ids

    def create_namespace(self, name: str) -> None:
        """A place for objects: without it a create there is answered 404."""
        kind = self._kinds.get(("", "namespaces"))
        if kind is not None:
            body: Json = {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
            self._writes.create(kind, body, "", How("kube-apiserver"))

    # Kinds

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Everything that is served now."""
        return tuple(self._kinds.values())

    def served(self, group: str, plural: str, version: str = "") -> Kind:
        """The kind behind a path.

        Raises:
            Refusal: nothing serves it, for instance because its CustomResourceDefinition is not installed (404).
        """
        kind = self._kinds.get((group, plural))
        if kind is None or version not in ("", kind.version):
            raise no_such_path()
        return kind

    def uninstall(self, resource: Resource) -> None:
        """Serve it no more, as if its CustomResourceDefinition had never been there."""
        self._kinds.pop((resource.group, resource.plural), None)

    # Reading

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object.

        Raises:
            Refusal: there is none (404).
        """
        return copied_from_store(self.shared(resource, name, namespace=namespace))

    def shared(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object as the store has it, to be read only: an answer that is written out at once needs no copy.

        Raises:
            Refusal: there is none (404).
        """
        kind = self.served(resource.group, resource.plural)
        return self._writes.existing(kind, name, self._where(kind, namespace))

    def find(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        """One object, or None."""
        kind = self.served(resource.group, resource.plural)
        return copied_from_store(self.store.get(kind, self._where(kind, namespace), name))

    def list(
        self, resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None
    ) -> list[Json]:
        """All that match, by namespace and name; namespace "" is all of them."""
        return [
            copied_from_store(found)
            for found in self.all_shared(resource, labels=labels, fields=fields, namespace=namespace)
        ]

    def all_shared(
        self, resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None
    ) -> Iterator[Json]:
        """As `list`, of objects to be read only."""
        kind = self.served(resource.group, resource.plural)
        return filter(reads.selected(labels, fields), self.store.all(kind, self._where(kind, namespace)))

    def existing(self) -> Iterator[Event]:
        """Everything that is there, as if it had just come."""
        for kind in self.kinds:
            for body in self.store.all(kind):
                yield Event(kind, "ADDED", None, body, self.store.version)

    def on_change(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Be told of every committed change at once and in order; the answer ends it.

        A listener may write; it hears of its own writes after it returned.
        """
        return self.store.listen(listener)

    # Writing

    def create(
        self,
        resource: Resource,
        body: Json,
        *,
        namespace: str | None = None,
        manager: str = CONTROLLER,
        dry_run: bool = False,
    ) -> Json:
        """Bring a new object.

        Raises:
            Refusal: taken (409), wrong (400, 422), or no such namespace (404).
        """
        kind = self.served(resource.group, resource.plural)
        how = How(manager, dry_run)
        return self._writes.create(kind, body, self._home(kind, body, namespace), how)

    def update(
        self,
        resource: Resource,
        body: Json,
        *,
        namespace: str | None = None,
        subresource: str = "",
        manager: str = CONTROLLER,
        dry_run: bool = False,
    ) -> Json:
        """Write the whole object, or with `status` nothing but its status.

        Raises:
            Refusal: somebody wrote since it was read, or it has another uid (409); no version on a custom object (422).
        """
        kind = self.served(resource.group, resource.plural)
        how = How(manager, dry_run, subresource)
        return self._writes.update(kind, body, self._home(kind, body, namespace), how)

    def update_status(self, resource: Resource, body: Json, *, manager: str = CONTROLLER) -> Json:
        """`update` of the status."""
        return self.update(resource, body, subresource="status", manager=manager)

    def edit(
        self,
        resource: Resource,
        name: str,
        change: Callable[[Json], None],
        *,
        namespace: str | None = None,
        subresource: str = "",
        manager: str = CONTROLLER,
    ) -> Json:
        """Read, let `change` alter the copy in place, write."""
        body = self.get(resource, name, namespace=namespace)
        change(body)
        return self.update(resource, body, subresource=subresource, manager=manager)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: Json | Sequence[Json],
        *,
        kind: PatchKind = PatchKind.MERGE,
        namespace: str | None = None,
        subresource: str = "",
        manager: str = CONTROLLER,
        dry_run: bool = False,
        force: bool = False,
    ) -> Json:
        """Merge patch, JSON patch, or server-side apply, which brings what is not there yet.

        A version in it is a condition; without one it goes onto whatever is there.

        Raises:
            Refusal: the condition does not hold, or somebody else owns an applied field (409); it does not fit (422).
        """
        served = self.served(resource.group, resource.plural)
        where, how = self._where(served, namespace), How(manager, dry_run, subresource)
        if kind is PatchKind.APPLY and isinstance(body, dict):
            return self._writes.apply(served, body, name, where, how, force=force)
        old = self._writes.existing(served, name, where)
        new = merged(old, body) if isinstance(body, dict) else patched(old, body)
        if new["metadata"].get("name") != name:
            raise Refusal(400, "BadRequest", f"the name of the object does not match the name on the URL ({name})")
        writes.check_kind(served, new)
        return self._writes.rewrite(served, old, copied(new), how)

    def apply(self, resource: Resource, body: Json, *, manager: str, force: bool = False) -> Json:
        """`patch` by server-side apply, of the object that the body names."""
        home = body["metadata"].get("namespace")
        return self.patch(
            resource, body["metadata"]["name"], body, kind=PatchKind.APPLY, namespace=home, manager=manager, force=force
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        propagation: str = "Background",
    ) -> Json:
        """End it.

        Raises:
            Refusal: there is none (404).
        """
        kind = self.served(resource.group, resource.plural)
        found = self._writes.existing(kind, name, self._where(kind, namespace))
        return self._writes.delete(kind, found, propagation)

    def _where(self, kind: Kind, namespace: str | None) -> str:
        return (self.namespace if namespace is None else namespace) if kind.namespaced else ""

    def _home(self, kind: Kind, body: Json, namespace: str | None) -> str:
        """The URL's namespace, and in plain Python the body's."""
        return self._where(kind, (body.get("metadata") or {}).get("namespace") if namespace is None else namespace)
