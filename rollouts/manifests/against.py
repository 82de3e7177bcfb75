"""Compares what is rendered with what a cluster has, by asking the cluster; changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rollouts.errors import Conflict, Forbidden, Invalid, NotFound
from rollouts.kube.model import Json, Resource
from rollouts.kube.ports import Cluster
from rollouts.kube.resources import (
    DEPLOYMENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    HTTP_ROUTES,
    NODE_POOLS,
    SCALED_OBJECTS,
    VIRTUAL_SERVICES,
    resource_of,
)
from rollouts.manifests.belonging import stranger
from rollouts.manifests.conventions import DELIVERY, MANAGED_BY
from rollouts.manifests.difference import Difference, State, difference
from rollouts.manifests.living import carried_over

_CHOICES: tuple[Resource, ...] = (
    HTTP_ROUTES,
    VIRTUAL_SERVICES,
    SCALED_OBJECTS,
    HORIZONTAL_POD_AUTOSCALERS,
    DEPLOYMENTS,
    NODE_POOLS,
)
"""Kinds of which a spec asks for one or the other, or none: what a former spec asked for may still act."""

_REFUSALS = (Conflict, Forbidden, Invalid, NotFound)


async def differences(cluster: Cluster, wanted: Sequence[Json]) -> tuple[Difference, ...]:
    """One for each object that is wanted, in their order, then those that are left over.

    Raises:
        FleetError: the cluster did not answer, or did not know who asks.
    """
    found = [await _difference(cluster, each) for each in wanted]
    names = {(each.kind, each.name) for each in found}
    deliveries = dict.fromkeys(each["metadata"]["labels"][DELIVERY] for each in wanted)
    left = [left for delivery in deliveries for left in await _left_over(cluster, delivery) if left not in names]
    return (*found, *(Difference(kind=kind, name=name, state=State.LEFT_OVER) for kind, name in left))


async def _difference(cluster: Cluster, wanted: Json) -> Difference:
    try:
        live = await _live(cluster, wanted)
        if live and (other := stranger(live, wanted["metadata"]["labels"][DELIVERY])):
            return Difference(kind=other.kind, name=other.name, state=State.NOT_OURS, text=str(other))
        would_be = await cluster.apply(carried_over(wanted, live) if live else wanted, force=True, dry_run=True)
    except _REFUSALS as error:
        metadata = wanted["metadata"]
        return Difference(kind=wanted["kind"], name=metadata["name"], state=State.REFUSED, text=error.message)
    return difference(live, would_be)


async def _live(cluster: Cluster, wanted: Json) -> Json | None:
    try:
        return await cluster.get(resource_of(wanted), wanted["metadata"]["name"])
    except NotFound:
        return None


async def _left_over(cluster: Cluster, delivery: str) -> Iterable[tuple[str, str]]:
    labels = ",".join(f"{key}={value}" for key, value in {DELIVERY: delivery, **MANAGED_BY}.items())
    seen: list[tuple[str, str]] = []
    for resource in _CHOICES:
        try:
            listed = await cluster.list(resource, labels=labels)
        except (NotFound, Forbidden):
            # A kind that the cluster does not know, or that we may not see, leaves nothing that we could tell of.
            continue
        seen += [(resource.kind, each["metadata"]["name"]) for each in listed.items]
    return seen
