"""What goes with an object: its dependents (Kubernetes, "Garbage Collection"), and what a namespace holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fakes.kube.copying import copied
from fakes.kube.kinds import Kind
from fakes.kube.store import Store

Json = dict[str, Any]


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
            kept = copied(found)
            del kept["metadata"]["ownerReferences"]
            kept["metadata"] |= {"ownerReferences": left} if left else {}
            store.put(kind, kept)
        else:
            collect(store, store.remove(kind, found), orphan=False)


def empty(store: Store, kinds: Iterable[Kind], namespace: str) -> None:
    """Remove what a deleted namespace held: the namespace controller, without its moment of Terminating."""
    for kind in kinds:
        for found in tuple(store.all(kind, namespace)) if kind.namespaced else ():
            store.remove(kind, found)
