"""What an administrator applies in a region next to objects of others: tidegate's rights, and the guard."""

from __future__ import annotations

from rollouts.manifests.objects.access import access_by_reference, guard_rights, route_rights
from rollouts.manifests.objects.guard import GuardPlace, guarding
from rollouts.manifests.pod_spec import GuardSpec
from rollouts.manifests.reference_spec import ReferencedFleetSpec
from rollouts.manifests.route_spec import RouteFleetSpec
from rollouts.manifests.routers import ROUTERS
from tidegate.core.model import Json


def beside(name: str, fleet: ReferencedFleetSpec | RouteFleetSpec, region: str, image: str) -> tuple[Json, ...]:
    """The objects of one region.

    Args:
        name: the delivery's.
        fleet: its fleet.
        region: one of the fleet's.
        image: of the guard, by digest; empty for no guard.
    """
    place: Json = {"start_seconds": fleet.start_within.total_seconds()}
    if isinstance(fleet, RouteFleetSpec):
        rights = route_rights(name, fleet.reference)
        place["reference"] = fleet.reference.model_dump(mode="json", exclude_defaults=True)
    else:
        theirs, route = fleet.rollout, ROUTERS[fleet.traffic].resource
        rights = guard_rights(name, theirs.name, route, theirs.route, theirs.workload or "", pools=theirs.services)
        place |= {"traffic": str(fleet.traffic), "theirs": theirs.model_dump(mode="json", exclude_defaults=True)}
    guard = GuardPlace(
        name=name,
        namespace=fleet.namespace,
        image=image,
        rights=rights,
        region=region,
        place=place,
        settings=fleet.guard or GuardSpec(),
    )
    return (*access_by_reference(guard, rights), *guarding(guard))
