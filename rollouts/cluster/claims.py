"""Looks for objects of others where this delivery's would be, before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rollouts.errors import NotFound, NotOurs
from rollouts.kube.model import Json
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import resource_of
from rollouts.manifests.belonging import HINT, stranger
from rollouts.model import Stranger


async def strangers(cluster: ClusterReader, manifests: Sequence[Json], delivery: str) -> tuple[Stranger, ...]:
    """Those that stand where one of these objects would be, in their order.

    Raises:
        FleetError: when the API server does not answer, or does not let us see.
    """
    found = await looked_at(cluster, manifests)
    return tuple(other for live in found if live and (other := stranger(live, delivery)))


async def looked_at(cluster: ClusterReader, manifests: Sequence[Json]) -> list[Json | None]:
    """What is there of each of these objects, in their order."""
    return await asyncio.gather(*(live_of(cluster, each) for each in manifests))


async def live_of(cluster: ClusterReader, manifest: Json) -> Json | None:
    """The object of that kind and name as it is now; None when there is none, or no such kind."""
    try:
        return await cluster.get(
            resource_of(manifest), manifest["metadata"]["name"], namespace=manifest["metadata"].get("namespace")
        )
    except NotFound:
        return None


def refuse(region: str, *found: Stranger | None) -> None:
    """Go on when there are none.

    Raises:
        NotOurs: with every one of them, and what to do.
    """
    others = [str(each) for each in found if each]
    if others:
        raise NotOurs(f"{region}: {'; '.join(others)}", hint=HINT)
