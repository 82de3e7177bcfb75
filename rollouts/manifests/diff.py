"""What applying the rendered objects would change, by the cluster's own answers to a dry run; changes nothing."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import StrEnum

from rollouts.errors import Conflict, Forbidden, Invalid, NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import resource_of
from rollouts.manifests.ownership import foreign_object, with_preserved_fields
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, MANAGED_BY_LABEL
from tidegate.core.yaml_text import yaml_text

_BY_THE_SERVER = {"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"}
"""Parts of the metadata that change by themselves."""


class DiffState(StrEnum):
    """What the cluster says of an object."""

    SAME = "same"
    CHANGED = "changed"
    NEW = "new"
    REFUSED = "refused"
    """The API server would not take it, or we may not ask."""
    NOT_OURS = "not tidegate's"
    """It is there, and somebody else's: applying would take it over."""


class ObjectDiff(Value):
    """One object."""

    kind: str
    name: str
    state: DiffState
    text: str = ""
    """Lines as `diff -u` writes them; the server's own words when it refused; whose it is, when it is not ours."""


def difference(before: Json | None, after: Json) -> ObjectDiff:
    """Between an object as it is (None when there is none) and the server's answer to a dry run."""
    kind, name = after["kind"], after["metadata"]["name"]
    now, then = (_settled(before, after) if before else "", _settled(after, after))
    if now == then:
        return ObjectDiff(kind=kind, name=name, state=DiffState.SAME)
    lines = difflib.unified_diff(now.splitlines(), then.splitlines(), "in the cluster", "as rendered", lineterm="")
    state = DiffState.NEW if before is None else DiffState.CHANGED
    return ObjectDiff(kind=kind, name=name, state=state, text="\n".join(lines))


def _settled(seen: Json, wanted: Json) -> str:
    metadata = {key: value for key, value in seen["metadata"].items() if key not in _BY_THE_SERVER}
    ours = (wanted["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL)
    if ours and (metadata.get("labels") or {}).get(MANAGED_BY_LABEL) == "Helm":
        # Helm writes itself into this label of everything that it installs, of charts that we wrote too.
        metadata["labels"] = {**metadata["labels"], MANAGED_BY_LABEL: ours}
    return yaml_text({key: value for key, value in {**seen, "metadata": metadata}.items() if key != "status"})


async def differences(cluster: KubeClient, wanted: Sequence[Json]) -> tuple[ObjectDiff, ...]:
    """One for each object that is wanted, in their order.

    Raises:
        FleetError: the cluster did not answer, or did not know who asks.
    """
    return tuple([await _difference(cluster, each) for each in wanted])


async def _difference(cluster: KubeClient, wanted: Json) -> ObjectDiff:
    kind, name, delivery = wanted["kind"], wanted["metadata"]["name"], wanted["metadata"]["labels"][DELIVERY]
    try:
        live = await cluster.find(resource_of(wanted), name)
        if live and (other := foreign_object(live, delivery)):
            return ObjectDiff(kind=other.kind, name=other.name, state=DiffState.NOT_OURS, text=str(other))
        kept = with_preserved_fields(wanted, live) if live else wanted
        return difference(live, await cluster.apply(kept, force=True, dry_run=True))
    except (Conflict, Forbidden, Invalid, NotFound) as error:
        return ObjectDiff(kind=kind, name=name, state=DiffState.REFUSED, text=error.message)
