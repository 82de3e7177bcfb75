"""Who else writes to a delivery's objects: objects of others in their place, and foreign changes of the Rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rollouts.argo.model import Rollout, parse_time
from rollouts.cluster.model import version_labels
from rollouts.errors import NotFound, NotOurs
from rollouts.kube.model import MANAGER, Json
from rollouts.kube.objects import owns_field
from rollouts.kube.ports import ClusterReader
from rollouts.kube.resources import resource_of
from rollouts.manifests.ownership import HINT, foreign_object
from rollouts.model import ForeignChange, ForeignObject
from tidegate.core.names import VERSION


async def foreign_objects(
    cluster: ClusterReader, manifests: Sequence[Json], delivery: str
) -> tuple[ForeignObject, ...]:
    """Those that stand where one of these objects would be, in their order.

    Raises:
        FleetError: when the API server does not answer, or does not let us see.
    """
    found = await live_objects(cluster, manifests)
    return tuple(other for live in found if live and (other := foreign_object(live, delivery)))


async def live_objects(cluster: ClusterReader, manifests: Sequence[Json]) -> list[Json | None]:
    """What is there of each of these objects, in their order."""
    return await asyncio.gather(*(live_object(cluster, each) for each in manifests))


async def live_object(cluster: ClusterReader, manifest: Json) -> Json | None:
    """The object of that kind and name as it is now; None when there is none, or no such kind."""
    try:
        return await cluster.get(
            resource_of(manifest), manifest["metadata"]["name"], namespace=manifest["metadata"].get("namespace")
        )
    except NotFound:
        return None


def refuse_foreign(region: str, *found: ForeignObject | None) -> None:
    """Go on when there are none.

    Raises:
        NotOurs: with every one of them, and what to do.
    """
    others = [str(each) for each in found if each]
    if others:
        raise NotOurs(f"{region}: {'; '.join(others)}", hint=HINT)


TEMPLATE = ("f:spec", "f:template")
LABEL = (*TEMPLATE, "f:metadata", "f:labels", f"f:{VERSION}")


def foreign_change(rollout: Json, stable: str) -> ForeignChange | None:
    """What somebody else asks for, as `metadata.managedFields` has it; None when it is tidegate's own operation.

    Anyone who writes a version takes its label over, alone; one who applies the same shares it (Kubernetes,
    "Server-Side Apply"). `stable` is the version that serves.
    """
    entries = [each for each in rollout["metadata"].get("managedFields") or [] if owns_field(each, TEMPLATE)]
    others = [each for each in entries if each.get("manager") != MANAGER]
    ours = any(owns_field(each, LABEL) for each in entries if each not in others)
    if ours or not others:
        return None
    # Others may own parts of the template that are not at issue; a template without the label has no owner of it.
    claiming = [each for each in others if owns_field(each, LABEL)] or others
    # The time is optional; RFC 3339 in UTC sorts as text.
    youngest = max(claiming, key=lambda each: str(each.get("time") or ""))
    version, *_ = version_labels(Rollout(rollout).spec.get("template") or {})
    at = parse_time(youngest.get("time"))
    who = str(youngest.get("manager") or "an unnamed field manager") + (f" at {at:%H:%M:%S} UTC" if at else "")
    what = f"version {version}" if version else "a pod template without a version"
    again = " again" if version and version == stable else ""
    name = Rollout(rollout).name
    return ForeignChange(
        version=version, reason=f"somebody changed Rollout {name} during the trial: {who} asks for {what}{again}"
    )
