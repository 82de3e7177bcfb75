"""What an administrator applies in a region next to objects of others: tidegate's rights, and the guard."""

from __future__ import annotations

from rollouts.kube.resources import HTTP_ROUTES, VIRTUAL_SERVICES
from rollouts.manifests.conventions import TrafficRouter
from rollouts.manifests.objects.access import access_by_reference, guard_rights, route_rights
from rollouts.manifests.objects.guard import GuardPlace, guarding
from rollouts.manifests.pod_spec import GuardSpec
from rollouts.manifests.reference_spec import ReferencedFleetSpec
from rollouts.manifests.route_spec import RouteFleetSpec
from tidegate.core.model import Json
from tidegate.core.units import format_duration


def beside(name: str, fleet: ReferencedFleetSpec | RouteFleetSpec, region: str, image: str) -> tuple[Json, ...]:
    """The objects of one region.

    Args:
        name: the delivery's.
        fleet: its fleet.
        region: one of the fleet's.
        image: of the guard, by digest; empty for no guard.
    """
    options = {
        "--namespace": fleet.namespace,
        "--region": region,
        "--start-within": format_duration(fleet.start_within),
    }
    if isinstance(fleet, RouteFleetSpec):
        rights = route_rights(name, fleet.reference)
        options["--reference"] = fleet.reference.model_dump_json(exclude_defaults=True)
    else:
        theirs, route = fleet.rollout, VIRTUAL_SERVICES if fleet.traffic is TrafficRouter.ISTIO else HTTP_ROUTES
        rights = guard_rights(name, theirs.name, route, theirs.route, theirs.workload or "", pools=theirs.services)
        options |= {"--traffic": str(fleet.traffic), "--reference": theirs.model_dump_json(exclude_defaults=True)}
    guard = GuardPlace(
        name=name,
        namespace=fleet.namespace,
        image=image,
        rights=rights,
        options=options,
        settings=fleet.guard or GuardSpec(),
    )
    return (*access_by_reference(guard, rights), *guarding(guard))
