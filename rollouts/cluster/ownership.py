"""Objects of others where a delivery's would be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from rollouts.errors import NotOurs, Unfit
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import resource_of
from rollouts.manifests.ownership import HINT, foreign_object
from rollouts.model import ForeignObject
from tidegate.core.model import Json


async def foreign_objects(cluster: KubeClient, manifests: Sequence[Json], delivery: str) -> tuple[ForeignObject, ...]:
    """Those that stand where one of these objects would be, in their order.

    Raises:
        FleetError: when the API server does not answer, or does not let us see.
    """
    found = await live_objects(cluster, manifests)
    return tuple(other for live in found if live and (other := foreign_object(live, delivery)))


async def live_objects(cluster: KubeClient, manifests: Sequence[Json]) -> list[Json | None]:
    """What is there of each of these objects, in their order."""
    return await asyncio.gather(*(live_object(cluster, each) for each in manifests))


async def live_object(cluster: KubeClient, manifest: Json) -> Json | None:
    """The object of that kind and name as it is now; None when there is none, or no such kind."""
    metadata = manifest["metadata"]
    return await cluster.find(resource_of(manifest), metadata["name"], namespace=metadata.get("namespace"))


def refuse_misfits(region: str, found: Iterable[str]) -> None:
    """Go on when objects of others are as the spec says.

    Raises:
        Unfit: with everything that does not fit.
    """
    if told := "; ".join(found):
        raise Unfit(f"{region}: {told}", hint="nothing was written")


def refuse_foreign(region: str, *found: ForeignObject | None) -> None:
    """Go on when there are none.

    Raises:
        NotOurs: with every one of them, and what to do.
    """
    others = [str(each) for each in found if each]
    if others:
        raise NotOurs(f"{region}: {'; '.join(others)}", hint=HINT)
