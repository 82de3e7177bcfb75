"""The garbage collector: dependents go after their last owner (Kubernetes, "Garbage Collection")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fakes.kube.copying import copied
from fakes.kube.kinds import Kind
from fakes.kube.store import Store

Json = dict[str, Any]


def collect(store: Store, kinds: Mapping[tuple[str, str], Kind], owner: Json, *, orphan: bool) -> None:
    """Remove what belonged to `owner` alone, and what belonged to that; an orphan only loses the reference.

    Upstream it takes a moment; here it is done before the delete is answered.
    """
    uid = owner["metadata"]["uid"]
    for key, found in tuple(store.everything()):
        references = found["metadata"].get("ownerReferences") or []
        left = [reference for reference in references if reference.get("uid") != uid]
        if len(left) == len(references) or key not in kinds:
            continue
        if left or orphan:
            kept = copied(found)
            kept["metadata"]["ownerReferences"] = left
            store.put(kinds[key], kept)
        else:
            collect(store, kinds, store.remove(kinds[key], found), orphan=False)
