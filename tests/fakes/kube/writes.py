"""What happens to a write between its arrival and the store, in the order in which an API server does it.

What the server itself writes into an object and does not let a writer change (API conventions, "Metadata";
`k8s.io/apiserver/pkg/registry/rest`). Schemas and defaults are asked of a real one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fakes.clock import Time
from fakes.kube import ownership, store
from fakes.kube.refusal import Refusal, already_exists, bad_request, conflict, invalid, no_such_path, not_found
from fakes.kube.store import Kind, Store, copied, copied_from_store

from tidegate.core.model import Json

_SYSTEM = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
"""Only the server writes these; what a writer says in their place is ignored."""


def timestamp(moment: datetime) -> str:
    """RFC 3339 with whole seconds, as `metav1.Time` is written."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def check_kind(kind: Kind, body: Json) -> None:
    """The body must be what the URL says.

    Raises:
        Refusal: another kind or version (400).
    """
    if body.get("apiVersion", kind.api_version) != kind.api_version or body.get("kind", kind.kind) != kind.kind:
        said = f"{body.get('kind')} in version {body.get('apiVersion')}"
        raise bad_request(f"the object provided is unrecognized (got {said}; expected {kind.kind})")


def placed(kind: Kind, body: Json, namespace: str) -> Json:
    """The body with type and namespace of the URL.

    Raises:
        Refusal: the body names another namespace (400), or is of another kind (400).
    """
    check_kind(kind, body)
    metadata = dict(body.get("metadata") or {})
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata} | rest


def born(kind: Kind, body: Json, *, now: datetime, seed: int) -> Json:
    """A new object: named, with a uid and generation 1, without a status where that has its own path."""
    metadata = body["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + format(seed % 36**5, "05x")[-5:]
    metadata["uid"] = str(uuid.UUID(int=seed, version=4))
    metadata["creationTimestamp"] = timestamp(now)
    metadata["generation"] = 1
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
        metadata.pop(key, None)
    if kind.status:
        body.pop("status", None)
    return body


def rewritten(kind: Kind, old: Json, new: Json) -> Json:
    """A write to the main resource: the status stays as it was, and a change of what is desired moves the generation.

    Generation follows `rest.BeforeUpdate` and the custom resources' strategy: any change outside metadata counts,
    and outside status where that has its own path.
    """
    result = {key: value for key, value in new.items() if key != "status" or not kind.status}
    if kind.status and "status" in old:
        result["status"] = old["status"]
    result["metadata"] = kept(old["metadata"], new.get("metadata") or {})
    if desired(kind, result) != desired(kind, old):
        result["metadata"]["generation"] = int(old["metadata"].get("generation", 0)) + 1
    return result


def desired(kind: Kind, body: Json) -> Json:
    """What a person or a controller asks for in it."""
    ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if kind.status else set())
    return {key: value for key, value in body.items() if key not in ignored}


def reported(old: Json, new: Json) -> Json:
    """A write to `/status`: nothing but the status is taken (custom resources' `statusStrategy`)."""
    result = {key: value for key, value in old.items() if key != "status"}
    return result | ({"status": new["status"]} if new.get("status") is not None else {})


def kept(old: Json, new: Json) -> Json:
    """New metadata with what only the server writes as it was."""
    result = {key: value for key, value in new.items() if key not in _SYSTEM}
    result |= {key: old[key] for key in _SYSTEM if key in old}
    result["name"] = old["name"]
    if "namespace" in old:
        result["namespace"] = old["namespace"]
    for key in ("labels", "annotations", "ownerReferences"):
        if not result.get(key):
            result.pop(key, None)  # an empty map or list is not stored
    result.pop("managedFields", None)
    if "managedFields" in old:
        result["managedFields"] = old["managedFields"]
    result["resourceVersion"] = old["resourceVersion"]
    return result


def without_nulls(value: Any) -> Any:
    """A copy without fields that are null: for a built-in kind they are absent, from a custom one they are pruned."""
    if isinstance(value, dict):
        return {key: one if type(one) is str else without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, (list, tuple)) else value


CONTROLLER = "controller"
"""The field manager of the one who writes in plain Python and says no other."""


@dataclass(frozen=True)
class How:
    """The parameters of a write."""

    manager: str = CONTROLLER
    dry_run: bool = False
    subresource: str = ""


class Writes:
    """The rules of every write of one cluster."""

    def __init__(self, store: Store, time: Time, kinds: Mapping[tuple[str, str], Kind]) -> None:
        self._store = store
        self._time = time
        self._kinds = kinds
        self.ids = 0
        """How many were given so far."""
        self.admission: list[Callable[[str, Kind, Json], None]] = []
        """Asked before every create and update with verb, kind and new object; one raises `Refusal` to refuse."""

    @property
    def _now(self) -> str:
        return timestamp(self._time.now())

    def existing(self, kind: Kind, name: str, namespace: str) -> Json:
        """The stored object, shared.

        Raises:
            Refusal: there is none (404).
        """
        found = self._store.get(kind, namespace, name)
        if found is None:
            raise not_found(kind.qualified, name)
        return found

    def create(self, kind: Kind, body: Json, namespace: str, how: How, *, managed: list[Json] | None = None) -> Json:
        """Bring a new object; `managed` where its owners are known already."""
        new = placed(kind, copied(body), namespace)
        if new["metadata"].pop("resourceVersion", ""):
            # storage.ErrResourceVersionSetOnCreate is no API error upstream either
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self._inhabited(kind, namespace)
        self.ids += 1
        new = born(kind, new, now=self._time.now(), seed=self.ids)
        if self._store.get(kind, namespace, new["metadata"]["name"]) is not None:
            raise already_exists(kind.qualified, new["metadata"]["name"])
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        return self._commit(kind, None, new, how, owned=managed is not None)

    def update(self, kind: Kind, body: Json, namespace: str, how: How) -> Json:
        """Put a whole object, or its status, in the place of what is there."""
        new = placed(kind, copied(body), namespace)
        old = self.existing(kind, new["metadata"].get("name", ""), namespace)
        if kind.custom and not new["metadata"].get("resourceVersion"):
            raise invalid(old["metadata"]["name"], "metadata.resourceVersion: must be specified for an update")
        return self.rewrite(kind, old, new, how)

    def rewrite(self, kind: Kind, old: Json, new: Json, how: How, *, owned: bool = False) -> Json:
        """Replace the state that was read; a version or uid in the new one must be the old one's."""
        if how.subresource and not (how.subresource == "status" and kind.status):
            raise no_such_path()
        for key in ("resourceVersion", "uid"):
            if (new["metadata"].get(key) or old["metadata"][key]) != old["metadata"][key]:
                raise conflict(kind.qualified, old["metadata"]["name"])
        managed = new["metadata"].get("managedFields") if owned else None
        after = reported(old, new) if how.subresource else rewritten(kind, old, new)
        if managed is not None:
            after = after | {"metadata": after["metadata"] | {"managedFields": managed}}
        return self._commit(kind, old, after, how, owned=owned)

    def apply(self, kind: Kind, body: Json, name: str, namespace: str, how: How, *, force: bool) -> Json:
        """Server-side apply: bring it, or settle with the other owners of its fields."""
        config = placed(kind, copied(body), namespace)
        if config["metadata"].setdefault("name", name) != name:
            raise Refusal(400, "BadRequest", f"the name of the object does not match the name on the URL ({name})")
        config = without_nulls(config)
        old = self._store.get(kind, namespace, name)
        if kind.status:
            config = {key: value for key, value in config.items() if key != "status"}
        live = old or {"metadata": {}}
        settled = ownership.applied(
            kind, live, config, manager=how.manager, subresource=how.subresource, force=force, now=self._now
        )
        if old is None:
            return self.create(kind, settled, namespace, how, managed=settled["metadata"]["managedFields"])
        return self.rewrite(kind, old, settled, how, owned=True)

    def _inhabited(self, kind: Kind, namespace: str) -> None:
        """`NamespaceLifecycle` admission: nothing comes into a namespace that is not there."""
        home = self._kinds.get(("", "namespaces"))
        if kind.namespaced and home is not None and self._store.get(home, "", namespace) is None:
            raise not_found("namespaces", namespace)

    def _commit(self, kind: Kind, old: Json | None, new: Json, how: How, *, owned: bool) -> Json:
        """Check, fill in, note who owns what, store.

        The new object shares no part with its writer's; what it shares with the old one is filled in already.
        A write that changes nothing is none: no new version, nothing to watch (`etcd3.GuaranteedUpdate`).
        """
        new = without_nulls(new)
        if not owned:
            new["metadata"]["managedFields"] = ownership.updated(
                kind, old, new, manager=how.manager, subresource=how.subresource, now=self._now
            )
        for check in self.admission:
            check("create" if old is None else "update", kind, copied(new))
        if how.dry_run or new == old:
            return new
        return copied_from_store(self._store.put(kind, new, manager=how.manager))

    def delete(self, kind: Kind, found: Json, propagation: str) -> Json:
        """End it."""
        gone = self._store.remove(kind, found)
        store.collect(self._store, gone, orphan=propagation == "Orphan")
        return copied_from_store(gone)
