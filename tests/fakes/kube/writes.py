"""What happens to a write between its arrival and the store, in the order in which an API server does it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fakes.kube import defaults, garbage, metadata, ownership
from fakes.kube.copying import copied
from fakes.kube.kinds import Kind
from fakes.kube.refusal import Cause, Refusal, already_exists, conflict, invalid, no_such_path, not_found
from fakes.kube.simulated_time import Time
from fakes.kube.store import Store

Json = dict[str, Any]

CONTROLLER = "controller"
"""The field manager of whoever writes in plain Python and says no other."""


class Check(Protocol):
    """Field validation of one write."""

    def decoded(self, kind: Kind, body: Json, before: Json | None) -> Json:
        """What of a body its kind knows; raises `Refusal`."""
        ...

    def valid(self, kind: Kind, body: Json, before: Json | None) -> None:
        """Raises `Refusal` for a value that cannot be."""
        ...


class Unchecked:
    """Takes all: whoever writes in plain Python is a part of the cluster, or of a test's set-up."""

    def decoded(self, kind: Kind, body: Json, before: Json | None) -> Json:
        return body

    def typed(self, kind: Kind, config: Json) -> Json:
        return config

    def valid(self, kind: Kind, body: Json, before: Json | None) -> None: ...


UNCHECKED = Unchecked()


@dataclass(frozen=True)
class How:
    """The parameters of a write."""

    manager: str = CONTROLLER
    dry_run: bool = False
    subresource: str = ""
    check: Check = UNCHECKED


class Writes:
    """The rules of every write of one cluster."""

    def __init__(self, store: Store, time: Time, kinds: Mapping[tuple[str, str], Kind], *, owners: bool) -> None:
        self._store = store
        self._time = time
        self._kinds = kinds
        self._ids = itertools.count(1)
        self._owners = owners
        self.admission: list[Callable[[str, Kind, Json], None]] = []

    @property
    def _now(self) -> str:
        return metadata.timestamp(self._time.now())

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
        new = metadata.placed(kind, copied(body), namespace)
        if new["metadata"].pop("resourceVersion", ""):
            # storage.ErrResourceVersionSetOnCreate is no API error upstream either
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self._inhabited(kind, namespace)
        new = metadata.born(kind, new, now=self._time.now(), seed=next(self._ids))
        if self._store.get(kind, namespace, new["metadata"]["name"]) is not None:
            raise already_exists(kind.qualified, new["metadata"]["name"])
        if managed is not None:
            new["metadata"]["managedFields"] = managed
        return self._commit("create", kind, None, new, how, owned=managed is not None)

    def update(self, kind: Kind, body: Json, namespace: str, how: How) -> Json:
        """Put a whole object, or its status, in the place of what is there."""
        new = metadata.placed(kind, copied(body), namespace)
        old = self.existing(kind, new["metadata"].get("name", ""), namespace)
        if kind.custom and not new["metadata"].get("resourceVersion"):
            said = "Invalid value: 0: must be specified for an update"
            cause = Cause("FieldValueInvalid", said, "metadata.resourceVersion")
            raise invalid(kind.kind, kind.group, old["metadata"]["name"], (cause,))
        return self.rewrite(kind, old, new, how)

    def rewrite(self, kind: Kind, old: Json, new: Json, how: How, *, owned: bool = False) -> Json:
        """Replace the state that was read; a version or uid in the new one must be the old one's."""
        if how.subresource and not (how.subresource == "status" and kind.status):
            raise no_such_path()
        for key in ("resourceVersion", "uid"):
            if (new["metadata"].get(key) or old["metadata"][key]) != old["metadata"][key]:
                raise conflict(kind.qualified, old["metadata"]["name"])
        managed = new["metadata"].get("managedFields") if owned else None
        after = metadata.reported(old, new) if how.subresource else metadata.rewritten(kind, old, new)
        if managed is not None:
            after = after | {"metadata": after["metadata"] | {"managedFields": managed}}
        return self._commit("update", kind, old, after, how, owned=owned)

    def apply(self, kind: Kind, body: Json, name: str, namespace: str, how: How, *, force: bool) -> Json:
        """Server-side apply: bring it, or settle with the other owners of its fields."""
        config = metadata.placed(kind, copied(body), namespace)
        if config["metadata"].setdefault("name", name) != name:
            raise Refusal(400, "BadRequest", f"the name of the object does not match the name on the URL ({name})")
        config = how.check.typed(kind, config)
        defaults.fill(kind, config)
        old = self._store.get(kind, namespace, name)
        if old is None and how.subresource:
            raise not_found(kind.qualified, name)
        if kind.status:
            config = metadata.status_only(config) if how.subresource else metadata.without_status(config)
        live = old or {"metadata": {}}
        settled = ownership.applied(
            kind, live, config, manager=how.manager, subresource=how.subresource, force=force, now=self._now
        )
        if old is None:
            return self.create(kind, settled, namespace, how, managed=settled["metadata"]["managedFields"])
        return self.rewrite(kind, old, settled, how, owned=True)

    def delete(self, kind: Kind, found: Json, propagation: str, how: How) -> Json:
        """End it, at once or when its finalizers are gone."""
        if how.dry_run or "deletionTimestamp" in found["metadata"]:
            return copied(found)
        if not found["metadata"].get("finalizers"):
            return self._bury(kind, found, propagation)
        leaving = copied(found)
        leaving["metadata"] |= {"deletionTimestamp": self._now, "deletionGracePeriodSeconds": 0}
        return copied(self._store.put(kind, leaving))

    def _inhabited(self, kind: Kind, namespace: str) -> None:
        """`NamespaceLifecycle` admission: nothing comes into a namespace that is not there."""
        home = self._kinds.get(("", "namespaces"))
        if kind.namespaced and home is not None and self._store.get(home, "", namespace) is None:
            raise not_found("namespaces", namespace)

    def _commit(self, verb: str, kind: Kind, old: Json | None, new: Json, how: How, *, owned: bool) -> Json:
        """Check, fill in, note who owns what, ask admission, store.

        A write that changes nothing is none: no new version, nothing to watch (`etcd3.GuaranteedUpdate`).
        """
        new = copied(how.check.decoded(kind, new, old))
        defaults.fill(kind, new)
        how.check.valid(kind, new, old)
        if self._owners and not owned:
            new["metadata"]["managedFields"] = ownership.updated(
                kind, old, new, manager=how.manager, subresource=how.subresource, now=self._now
            )
        for check in self.admission:
            check(verb, kind, copied(new))
        if how.dry_run or new == old:
            return new
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self._bury(kind, self._store.put(kind, new), "Background")
        return copied(self._store.put(kind, new))

    def _bury(self, kind: Kind, found: Json, propagation: str) -> Json:
        gone = self._store.remove(kind, found)
        garbage.collect(self._store, gone, orphan=propagation == "Orphan")
        if kind.key == ("", "namespaces"):
            garbage.empty(self._store, self._kinds.values(), gone["metadata"]["name"])
        return copied(gone)
