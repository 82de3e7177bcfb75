"""A Kubernetes cluster's API server in memory: what it stores, accepts, refuses and tells.

Controllers (simulated ones too) use it as plain Python; clients reach it through `fakes.kube.transport` in process or
`fakes.kube.server` over a socket, where who asks, faults and access come in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from fakes.kube import garbage, metadata, selectors
from fakes.kube.kinds import KINDS, Kind
from fakes.kube.patches import merged, patched
from fakes.kube.refusal import Cause, Refusal, already_exists, conflict, invalid, no_such_path, not_found
from fakes.kube.simulated_time import SimulatedTime, Time
from fakes.kube.store import Event, Store

from rollouts.kube.model import PatchKind, Resource

Json = dict[str, Any]

CONTROLLER = "controller"
"""The field manager of whoever writes in plain Python and says no other."""


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
        kinds: tuple[Kind, ...] = KINDS,
        git_version: str = "v1.34.1",
    ) -> None:
        self.name = name
        self.namespace = namespace
        """Where objects are that name none."""
        self.time: Time = time or SimulatedTime()
        self.git_version = git_version
        self.store = Store()
        self.admission: list[Callable[[str, Kind, Json], None]] = []
        """Asked before every create and update with verb, kind and new object; raises `Refusal` to refuse."""
        self._kinds = {kind.key: kind for kind in kinds}
        self._ids = itertools.count(1)
        for each in dict.fromkeys(("default", "kube-system", namespace)):
            self.create_namespace(each)

    def create_namespace(self, name: str) -> None:
        """A place for objects: without it a create there is answered 404."""
        body: Json = {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
        kind = self._kinds.get(("", "namespaces"))
        if kind is not None:
            self.store.put(kind, metadata.born(kind, metadata.placed(kind, body, ""), **self._birth()))

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

    def install(self, kind: Kind) -> None:
        """Serve it from now on."""
        self._kinds[kind.key] = kind

    def uninstall(self, resource: Resource) -> None:
        """Serve it no more, as if its CustomResourceDefinition had never been there."""
        self._kinds.pop((resource.group, resource.plural), None)

    # Reading

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object.

        Raises:
            Refusal: there is none (404).
        """
        kind = self.served(resource.group, resource.plural)
        return deepcopy(self._existing(kind, name, self._where(kind, namespace)))

    def find(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
        """One object, or None."""
        kind = self.served(resource.group, resource.plural)
        return deepcopy(self.store.get(kind, self._where(kind, namespace), name))

    def list(
        self, resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None
    ) -> list[Json]:
        """All that match, by namespace and name; namespace "" is all of them."""
        kind = self.served(resource.group, resource.plural)
        chosen = selectors.both(labels, fields, kind.plural)
        return [deepcopy(found) for found in self.store.all(kind, self._where(kind, namespace)) if chosen(found)]

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
        where = self._home(kind, body, namespace)
        new = metadata.placed(kind, deepcopy(body), where)
        if new["metadata"].pop("resourceVersion", ""):
            # storage.ErrResourceVersionSetOnCreate is no API error upstream either
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self._inhabited(kind, where)
        new = metadata.born(kind, new, **self._birth())
        if self.store.get(kind, where, new["metadata"]["name"]) is not None:
            raise already_exists(kind.qualified, new["metadata"]["name"])
        return self._commit("create", kind, None, new, manager=manager, dry_run=dry_run)

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
        where = self._home(kind, body, namespace)
        new = metadata.placed(kind, deepcopy(body), where)
        old = self._existing(kind, new["metadata"].get("name", ""), where)
        if kind.custom and not new["metadata"].get("resourceVersion"):
            cause = Cause(
                "FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion"
            )
            raise invalid(kind.kind, kind.group, old["metadata"]["name"], (cause,))
        return self._rewrite(kind, old, new, subresource=subresource, manager=manager, dry_run=dry_run)

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
    ) -> Json:
        """Merge or JSON patch. A version in it is a condition; without one the patch goes onto whatever is there.

        Raises:
            Refusal: the condition does not hold (409), or the patch does not fit (422).
        """
        served = self.served(resource.group, resource.plural)
        old = self._existing(served, name, self._where(served, namespace))
        new = merged(old, body) if isinstance(body, dict) else patched(old, body)
        if new["metadata"].get("name") != name:
            raise Refusal(400, "BadRequest", f"the name of the object does not match the name on the URL ({name})")
        metadata.check_kind(served, new)
        return self._rewrite(served, old, deepcopy(new), subresource=subresource, manager=manager, dry_run=dry_run)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        propagation: str = "Background",
        preconditions: Json | None = None,
        dry_run: bool = False,
    ) -> Json:
        """End it. With finalizers it only gets a deletion time, and goes when the last one is taken off.

        Raises:
            Refusal: there is none (404), or it is not the one that was meant (409).
        """
        kind = self.served(resource.group, resource.plural)
        found = self._existing(kind, name, self._where(kind, namespace))
        for key, wanted in (preconditions or {}).items():
            if found["metadata"].get(key) != wanted:
                raise conflict(kind.qualified, name)
        if dry_run:
            return deepcopy(found)
        if not found["metadata"].get("finalizers"):
            return self._bury(kind, found, propagation)
        if "deletionTimestamp" in found["metadata"]:
            return deepcopy(found)
        leaving = deepcopy(found)
        leaving["metadata"]["deletionTimestamp"] = metadata.timestamp(self.time.now())
        leaving["metadata"]["deletionGracePeriodSeconds"] = 0
        return deepcopy(self.store.put(kind, leaving))

    # Rules

    def _where(self, kind: Kind, namespace: str | None) -> str:
        return (self.namespace if namespace is None else namespace) if kind.namespaced else ""

    def _home(self, kind: Kind, body: Json, namespace: str | None) -> str:
        """The URL's namespace, and in plain Python the body's."""
        return self._where(kind, (body.get("metadata") or {}).get("namespace") if namespace is None else namespace)

    def _existing(self, kind: Kind, name: str, namespace: str) -> Json:
        found = self.store.get(kind, namespace, name)
        if found is None:
            raise not_found(kind.qualified, name)
        return found

    def _inhabited(self, kind: Kind, namespace: str) -> None:
        """`NamespaceLifecycle` admission: nothing comes into a namespace that is not there."""
        home = self._kinds.get(("", "namespaces"))
        if kind.namespaced and home is not None and self.store.get(home, "", namespace) is None:
            raise not_found("namespaces", namespace)

    def _birth(self) -> Json:
        return {"now": self.time.now(), "seed": next(self._ids)}

    def _rewrite(self, kind: Kind, old: Json, new: Json, *, subresource: str, manager: str, dry_run: bool) -> Json:
        name = old["metadata"]["name"]
        if subresource and not (subresource == "status" and kind.status):
            raise no_such_path()
        if (new["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]) != old["metadata"][
            "resourceVersion"
        ] or new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise conflict(kind.qualified, name)
        after = metadata.reported(old, new) if subresource else metadata.rewritten(kind, old, new)
        return self._commit("update", kind, old, after, manager=manager, dry_run=dry_run)

    def _commit(self, verb: str, kind: Kind, old: Json | None, new: Json, *, manager: str, dry_run: bool) -> Json:
        """Store it. A write that changes nothing is none: no new version, nothing to watch (`etcd3.GuaranteedUpdate`)."""
        for check in self.admission:
            check(verb, kind, deepcopy(new))
        if dry_run or new == old:
            return deepcopy(new)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self._bury(kind, self.store.put(kind, new), "Background")
        return deepcopy(self.store.put(kind, new))

    def _bury(self, kind: Kind, found: Json, propagation: str) -> Json:
        gone = self.store.remove(kind, found)
        garbage.collect(self.store, self._kinds, gone, orphan=propagation == "Orphan")
        return deepcopy(gone)
