"""A Kubernetes cluster's API server in memory: what it stores, accepts, refuses and tells.

Controllers (simulated ones too) use it as plain Python; clients reach it through `fakes.kube.server`, in process or
over a socket, where who asks, faults and access come in. What happens to a write between its arrival and the store, and
what the server itself writes into an object, is as the API conventions have it ("Metadata";
`k8s.io/apiserver/pkg/registry/rest`). Schemas and defaults are asked of a real one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jsonpatch
from fakes.clock import SimulatedTime, Time
from fakes.kube import ownership
from fakes.kube.refusal import Refusal, already_exists, bad_request, conflict, invalid, no_such_path, not_found
from fakes.kube.store import KINDS, Event, Store, collect, copied, copied_from_store, has_status, is_custom
from jsonpointer import JsonPointerException

from rollouts.kube.resources import NAMESPACES, PatchKind, Resource
from tidegate.core.model import Json

CONTROLLER = "controller"
"""The field manager of the one who writes in plain Python and says no other."""

_SYSTEM = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
"""Only the server writes these; what a writer says in their place is ignored."""


@dataclass(frozen=True)
class Kept:
    """All that is in a cluster at one moment."""

    objects: tuple[tuple[Resource, Json], ...]
    version: int
    ids: int
    """How many were given so far."""


class FakeCluster:
    """One cluster. Every write obeys the API conventions; every answer is a copy of its own.

    All times in it come from `time`, all versions from one counter and all ids from another, so that the same calls
    give the same cluster. Reads and writes raise `Refusal`: no such object, kind or namespace (404), a name that is
    taken, a version or uid that is not the newest, a field of another owner (409), a body that is wrong (400, 422).
    """

    def __init__(self, name: str = "eu-west-1", *, namespace: str = "default", time: Time | None = None) -> None:
        self.name = name
        self.namespace = namespace
        """Where objects are that name none."""
        self.time: Time = time or SimulatedTime()
        self.store = Store()
        self.admission: list[Callable[[str, Resource, Json], None]] = []
        """Asked before every create and update with verb, kind and new object; one raises `Refusal` to refuse."""
        self._kinds = {(kind.group, kind.plural): kind for kind in KINDS}
        self._ids = 0
        for each in dict.fromkeys(("default", "kube-system", namespace)):
            self.create_namespace(each)

    def kept(self) -> Kept:
        """What is there now, for another cluster to begin with."""
        objects = tuple((self._kinds[key], body) for key, body in self.store.everything())
        return Kept(objects, self.store.version, self._ids)

    def begin_with(self, kept: Kept) -> None:
        """Be as another cluster was; nobody is told."""
        self.store.fill(kept.objects, kept.version)
        self._ids = kept.ids

    def create_namespace(self, name: str) -> None:
        """A place for objects: without it a create there is answered 404."""
        body: Json = {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
        self.create(NAMESPACES, body, manager="kube-apiserver")

    # Kinds

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """Everything that is served now."""
        return tuple(self._kinds.values())

    def served(self, group: str, plural: str, version: str = "") -> Resource:
        """The kind behind a path, unless its CustomResourceDefinition is not installed."""
        kind = self._kinds.get((group, plural))
        if kind is None or version not in ("", kind.version):
            raise no_such_path()
        return kind

    def uninstall(self, resource: Resource) -> None:
        """Serve it no more, as if its CustomResourceDefinition had never been there."""
        self._kinds.pop((resource.group, resource.plural), None)

    # Reading

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object."""
        return copied_from_store(self.shared(resource, name, namespace=namespace))

    def shared(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object as the store has it, to be read only: an answer that is written out at once needs no copy."""
        kind = self.served(resource.group, resource.plural)
        found = self.store.get(kind, self._where(kind, namespace), name)
        if found is None:
            raise not_found(kind, name)
        return found

    def find(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        """One object, or None."""
        kind = self.served(resource.group, resource.plural)
        return copied_from_store(self.store.get(kind, self._where(kind, namespace), name))

    def list(self, resource: Resource, *, labels: str = "", namespace: str | None = None) -> list[Json]:
        """All that match, by namespace and name; namespace "" is all of them."""
        return [copied_from_store(each) for each in self.all_shared(resource, labels=labels, namespace=namespace)]

    def all_shared(self, resource: Resource, *, labels: str = "", namespace: str | None = None) -> Iterator[Json]:
        """As `list`, of objects to be read only (Kubernetes, "Labels and Selectors")."""
        if set("!() ") & set(labels):
            raise bad_request(f"unable to parse requirement: {labels}")
        kind = self.served(resource.group, resource.plural)
        by_label = [term.partition("=") for term in labels.split(",") if term]
        for found in self.store.all(kind, self._where(kind, namespace)):
            has = found["metadata"].get("labels") or {}
            if all(has.get(key) == value if sign else key in has for key, sign, value in by_label):
                yield found

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
        managed: list[Json] | None = None,
    ) -> Json:
        """Bring a new object; `managed` where its owners are known already."""
        kind, where, new = self._placed(resource, body, namespace)
        metadata = new["metadata"]
        if metadata.pop("resourceVersion", ""):
            # storage.ErrResourceVersionSetOnCreate is no API error upstream either
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        if kind.namespaced and ("", "namespaces") in self._kinds and self.store.get(NAMESPACES, "", where) is None:
            # `NamespaceLifecycle` admission.
            raise not_found(NAMESPACES, where)
        self._ids += 1
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + format(self._ids % 36**5, "05x")[-5:]
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
            metadata.pop(key, None)
        born = {"uid": str(uuid.UUID(int=self._ids, version=4)), "creationTimestamp": self._now, "generation": 1}
        metadata |= born | ({"managedFields": managed} if managed is not None else {})
        if has_status(kind):
            new.pop("status", None)
        if self.store.get(kind, where, metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        return self._commit(kind, None, new, manager, dry_run=dry_run, owned=managed is not None)

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
        """Write the whole object, or with `status` nothing but its status; no version on a custom object is 422."""
        kind, where, new = self._placed(resource, body, namespace)
        old = self.shared(kind, new["metadata"].get("name", ""), namespace=where)
        if is_custom(kind) and not new["metadata"].get("resourceVersion"):
            raise invalid(old["metadata"]["name"], "metadata.resourceVersion: must be specified for an update")
        return self._rewrite(kind, old, new, manager, subresource, dry_run=dry_run)

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
        """
        if kind is PatchKind.APPLY and isinstance(body, dict):
            options: Json = {"manager": manager, "subresource": subresource, "dry_run": dry_run, "force": force}
            return self._apply(resource, body, name, namespace, **options)
        old = self.shared(resource, name, namespace=namespace)
        new = merged(old, body) if isinstance(body, dict) else patched(old, body)
        if new["metadata"].get("name") != name:
            raise bad_request(f"the name of the object does not match the name on the URL ({name})")
        served = self._of_kind(resource, new)
        return self._rewrite(served, old, copied(new), manager, subresource, dry_run=dry_run)

    def apply(self, resource: Resource, body: Json, *, manager: str, force: bool = False) -> Json:
        """`patch` by server-side apply, of the object that the body names."""
        home = body["metadata"].get("namespace")
        return self.patch(
            resource, body["metadata"]["name"], body, kind=PatchKind.APPLY, namespace=home, manager=manager, force=force
        )

    def delete(
        self, resource: Resource, name: str, *, namespace: str | None = None, propagation: str = "Background"
    ) -> Json:
        """End it."""
        kind = self.served(resource.group, resource.plural)
        gone = self.store.remove(kind, self.shared(kind, name, namespace=namespace))
        collect(self.store, gone, orphan=propagation == "Orphan")
        return copied_from_store(gone)

    @property
    def _now(self) -> str:
        return timestamp(self.time.now())

    def _where(self, kind: Resource, namespace: str | None) -> str:
        return (self.namespace if namespace is None else namespace) if kind.namespaced else ""

    def _of_kind(self, resource: Resource, body: Json) -> Resource:
        """The body must be what the URL says."""
        kind = self.served(resource.group, resource.plural)
        if body.get("apiVersion", kind.api_version) != kind.api_version or body.get("kind", kind.kind) != kind.kind:
            said = f"{body.get('kind')} in version {body.get('apiVersion')}"
            raise bad_request(f"the object provided is unrecognized (got {said}; expected {kind.kind})")
        return kind

    def _placed(self, resource: Resource, body: Json, namespace: str | None) -> tuple[Resource, str, Json]:
        """A copy of the body with type and namespace of the URL; in plain Python the namespace is the body's own."""
        kind, body = self._of_kind(resource, body), copied(body)
        metadata = body.get("metadata") or {}
        where = self._where(kind, metadata.get("namespace") if namespace is None else namespace)
        if kind.namespaced and metadata.setdefault("namespace", where) != where:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if not kind.namespaced:
            metadata.pop("namespace", None)
        rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
        return kind, where, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata} | rest

    def _rewrite(
        self,
        kind: Resource,
        old: Json,
        new: Json,
        manager: str,
        subresource: str,
        *,
        dry_run: bool,
        owned: bool = False,
    ) -> Json:
        """Replace the state that was read; a version or uid in the new one must be the old one's."""
        if subresource and not (subresource == "status" and has_status(kind)):
            raise no_such_path()
        for key in ("resourceVersion", "uid"):
            if (new["metadata"].get(key) or old["metadata"][key]) != old["metadata"][key]:
                raise conflict(kind, old["metadata"]["name"])
        if subresource:
            # Nothing but the status is taken (custom resources' `statusStrategy`).
            after = {key: value for key, value in old.items() if key != "status"}
            after |= {"status": new["status"]} if new.get("status") is not None else {}
        else:
            after = _rewritten(kind, old, new)
        if owned:
            after |= {"metadata": after["metadata"] | {"managedFields": new["metadata"]["managedFields"]}}
        return self._commit(kind, old, after, manager, subresource, dry_run=dry_run, owned=owned)

    def _apply(
        self,
        resource: Resource,
        body: Json,
        name: str,
        namespace: str | None,
        *,
        manager: str,
        subresource: str,
        dry_run: bool,
        force: bool,
    ) -> Json:
        """Server-side apply: bring it, or settle with the other owners of its fields."""
        kind, where, config = self._placed(resource, body, self._where(resource, namespace))
        if config["metadata"].setdefault("name", name) != name:
            raise bad_request(f"the name of the object does not match the name on the URL ({name})")
        config = _without_nulls(config)
        if has_status(kind):
            config.pop("status", None)
        old = self.store.get(kind, where, name)
        settled = ownership.applied(
            kind,
            old or {"metadata": {}},
            config,
            manager=manager,
            subresource=subresource,
            force=force,
            now=self._now,
        )
        if old is None:
            managed = settled["metadata"]["managedFields"]
            return self.create(kind, settled, namespace=where, manager=manager, dry_run=dry_run, managed=managed)
        return self._rewrite(kind, old, settled, manager, subresource, dry_run=dry_run, owned=True)

    def _commit(
        self,
        kind: Resource,
        old: Json | None,
        new: Json,
        manager: str,
        subresource: str = "",
        *,
        dry_run: bool,
        owned: bool,
    ) -> Json:
        """Check, fill in, note who owns what, store.

        The new object shares no part with its writer's; what it shares with the old one is filled in already.
        A write that changes nothing is none: no new version, nothing to watch (`etcd3.GuaranteedUpdate`).
        """
        new = _without_nulls(new)
        if not owned:
            new["metadata"]["managedFields"] = ownership.updated(
                kind, old, new, manager=manager, subresource=subresource, now=self._now
            )
        for check in self.admission:
            check("create" if old is None else "update", kind, copied(new))
        if dry_run or new == old:
            return new
        return copied_from_store(self.store.put(kind, new, manager=manager))


def timestamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as `metav1.Time` is written."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


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


def _rewritten(kind: Resource, old: Json, new: Json) -> Json:
    """A write to the main resource: the status stays as it was, and a change of what is desired moves the generation.

    Generation follows `rest.BeforeUpdate` and the custom resources' strategy: any change outside metadata counts,
    and outside status where that has its own path. What only the server writes of the metadata is as it was.
    """
    before, said = old["metadata"], new.get("metadata") or {}
    metadata = {key: value for key, value in said.items() if key not in (*_SYSTEM, "managedFields")}
    metadata |= {
        key: before[key] for key in (*_SYSTEM, "managedFields", "name", "namespace", "resourceVersion") if key in before
    }
    for key in ("labels", "annotations", "ownerReferences"):
        if not metadata.get(key):
            metadata.pop(key, None)  # an empty map or list is not stored
    result = {key: value for key, value in new.items() if key != "status" or not has_status(kind)}
    if has_status(kind) and "status" in old:
        result["status"] = old["status"]
    if _desired(kind, result) != _desired(kind, old):
        metadata["generation"] = int(before.get("generation", 0)) + 1
    return result | {"metadata": metadata}


def _desired(kind: Resource, body: Json) -> Json:
    """What a person or a controller asks for in it."""
    ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if has_status(kind) else set())
    return {key: value for key, value in body.items() if key not in ignored}


def _without_nulls(value: Any) -> Any:
    """A copy without fields that are null: for a built-in kind they are absent, from a custom one they are pruned."""
    if isinstance(value, dict):
        return {key: one if type(one) is str else _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, (list, tuple)) else value
