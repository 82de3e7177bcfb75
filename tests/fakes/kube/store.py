"""Resources, objects and their changes: what etcd is to an API server.

What goes with an object: its dependents (Kubernetes, "Garbage Collection").
"""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from rollouts.kube.resources import ACCESS_REVIEWS, RESOURCES, Resource
from tidegate.core.model import Json

_BUILT_IN = ("", "apps", "autoscaling", "batch", "policy")
"""Groups of the API server itself whose name has no dot; its others end in `.k8s.io`."""

_EXTENSION = "gateway."
"""Of Kubernetes' own groups the one that is brought by definitions."""

_WITHOUT_STATUS = frozenset(
    {
        *("podtemplates", "endpoints", "events", "configmaps", "secrets", "serviceaccounts", "limitranges"),
        *("leases", "endpointslices", "networkpolicies", "priorityclasses", "storageclasses"),
        *("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
        "validatingadmissionpolicybindings",
        *("analysisruns", "analysistemplates", "clusteranalysistemplates"),
        *("workflows", "workflowtemplates", "referencegrants"),
    }
)
"""Kinds without a `/status`: a status in such an object is a field like any other. AnalysisRuns are among them
(argo-rollouts, manifests/crds/analysis-run-crd.yaml has no `subresources`)."""


KINDS = tuple(each for each in RESOURCES if each is not ACCESS_REVIEWS)
"""What a cluster has with everything installed that tidegate may meet."""


def has_status(kind: Resource) -> bool:
    """Whether `/status` is served."""
    return kind.plural not in _WITHOUT_STATUS


def is_custom(kind: Resource) -> bool:
    """Whether a CustomResourceDefinition brings it: such a kind takes no update without a version."""
    group = kind.group
    return not (group in _BUILT_IN or (group.endswith(".k8s.io") and not group.startswith(_EXTENSION)))


T = TypeVar("T")


def copied(value: T) -> T:
    """The same maps and lists, none of them shared."""
    return cast(T, _copy(value))


def _copy(value: Any) -> Any:
    # Most of what an object holds is text; a call for each would take most of the time.
    if isinstance(value, dict):
        return {key: one if type(one) is str else _copy(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [one if type(one) is str else _copy(one) for one in value]
    return value


def copied_from_store(value: T) -> T:
    """As `copied`, three times as fast, of what a store holds: maps, lists and texts, each in one place."""
    return cast(T, marshal.loads(marshal.dumps(value)))


Place = tuple[str, str]
"""Namespace (empty for cluster-wide kinds) and name."""


@dataclass(frozen=True)
class Event:
    """One change that was committed; objects in it are shared and must not be changed."""

    kind: Resource
    change: str
    """ADDED, MODIFIED or DELETED."""
    before: Json | None
    after: Json
    """For a deletion, the last state with the version of the deletion, as upstream."""
    version: int
    manager: str = ""
    """Who wrote it, by the name that field managers have; empty for a deletion, which says no name."""

    @property
    def name(self) -> str:
        return str(self.after["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.after["metadata"].get("namespace", ""))


class Store:
    """One counter of versions for all kinds, as etcd's revision; each change is told to all listeners in order.

    Committed objects are never changed in place: a new state takes the old one's place.
    """

    def __init__(self) -> None:
        self.version = 1
        self._by_kind: dict[tuple[str, str], dict[Place, Json]] = {}
        self._dependents: dict[str, dict[tuple[tuple[str, str], Place], Resource]] = {}
        self._listeners: list[Callable[[Event], None]] = []
        self._untold: deque[Event] = deque()
        self._telling = False

    def fill(self, objects: Iterable[tuple[Resource, Json]], version: int) -> None:
        """Hold these and nothing else, as they are."""
        self._by_kind.clear()
        self._dependents.clear()
        for kind, body in objects:
            self._by_kind.setdefault(_key(kind), {})[_place(body)] = body
            self._relate(kind, _place(body), None, body)
        self.version = version

    def get(self, kind: Resource, namespace: str, name: str) -> Json | None:
        return self._by_kind.get(_key(kind), {}).get((namespace, name))

    def all(self, kind: Resource, namespace: str = "") -> Iterator[Json]:
        """In order of namespace and name, as a list is answered."""
        for (where, _), found in sorted(self._by_kind.get(_key(kind), {}).items()):
            if not namespace or where == namespace:
                yield found

    def everything(self) -> Iterator[tuple[tuple[str, str], Json]]:
        """All objects, each with its group and plural."""
        for key, found in tuple(self._by_kind.items()):
            yield from ((key, one) for one in tuple(found.values()))

    def dependents(self, uid: str) -> list[tuple[Resource, Place]]:
        """What names an owner of this id, as it is at this moment."""
        return [(kind, place) for (_, place), kind in self._dependents.get(uid, {}).items()]

    def put(self, kind: Resource, body: Json, *, manager: str = "") -> Json:
        """Commit a new state under the next version; the body is the store's from now on."""
        place = _place(body)
        before = self._by_kind.setdefault(_key(kind), {}).get(place)
        after = self._next(body)
        self._by_kind[_key(kind)][place] = after
        self._relate(kind, place, before, after)
        self._tell(Event(kind, "MODIFIED" if before else "ADDED", before, after, self.version, manager))
        return after

    def remove(self, kind: Resource, body: Json) -> Json:
        """Commit that it is gone."""
        before = self._by_kind[_key(kind)].pop(_place(body))
        self._relate(kind, _place(body), before, None)
        after = self._next(before)
        self._tell(Event(kind, "DELETED", before, after, self.version))
        return after

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Be told of every change from now on; the answer ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _relate(self, kind: Resource, place: Place, before: Json | None, after: Json | None) -> None:
        here = (_key(kind), place)
        for uid in _owners(before):
            self._dependents[uid].pop(here, None)
        for uid in _owners(after):
            self._dependents.setdefault(uid, {})[here] = kind

    def _next(self, body: Json) -> Json:
        self.version += 1
        return body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}

    def _tell(self, event: Event) -> None:
        """A listener may change objects itself; all others still hear first what came first."""
        self._untold.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._untold:
                next_event = self._untold.popleft()
                for listener in tuple(self._listeners):
                    listener(next_event)
        finally:
            self._telling = False


def _key(kind: Resource) -> tuple[str, str]:
    return kind.group, kind.plural


def _owners(body: Json | None) -> list[str]:
    return (
        []
        if body is None
        else [owner["uid"] for owner in body["metadata"].get("ownerReferences") or () if "uid" in owner]
    )


def _place(body: Json) -> Place:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def collect(store: Store, owner: Json, *, orphan: bool) -> None:
    """Remove what belonged to `owner` alone, and what belonged to that; an orphan only loses the reference.

    Upstream it takes a moment; here it is done before the delete is answered.
    """
    uid = owner["metadata"]["uid"]
    for kind, (namespace, name) in store.dependents(uid):
        found = store.get(kind, namespace, name)
        if found is None:
            continue
        left = [one for one in found["metadata"]["ownerReferences"] if one.get("uid") != uid]
        if left or orphan:
            kept = copied_from_store(found)
            del kept["metadata"]["ownerReferences"]
            kept["metadata"] |= {"ownerReferences": left} if left else {}
            store.put(kind, kept)
        else:
            collect(store, store.remove(kind, found), orphan=False)
