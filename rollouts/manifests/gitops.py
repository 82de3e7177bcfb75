"""What a delivery writes of a region's objects, told to Argo CD, which would write it back from Git. Pure.

Of an object that a delivery applies it owns the whole content: a Rollout is replaced whole, and fields of Services and
routes are Argo Rollouts'. So every top-level field is ignored, and not single fields below: Argo CD cannot keep one
element of a list when it syncs (argo-cd#17694), and weights stand in lists. Labels and annotations are ignored too: a
sync with `Replace=true` would take away the label by which an object is a delivery's.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, ROLLOUTS, WORKLOADS, Resource, resource_of
from rollouts.manifests.routers import ROUTERS, HttpRoutes
from rollouts.manifests.theirs_spec import ReferencedFleetSpec, RouteFleetSpec, TheirsFleetSpec
from tidegate.core.model import Json

METADATA = ("/metadata/labels", "/metadata/annotations")
_IDENTITY = ("apiVersion", "kind", "metadata", "status")


def delivered_objects(manifests: Iterable[Json]) -> list[Json]:
    """Of these objects, each once, in their order."""
    found: dict[tuple[str, str, str], Json] = {}
    for each in manifests:
        resource, name, namespace = resource_of(each), each["metadata"]["name"], each["metadata"].get("namespace")
        fields = (*(f"/{key}" for key in each if key not in _IDENTITY), *METADATA)
        found.setdefault((resource.group, resource.kind, name), _ignored(resource, name, namespace or "", fields))
    return list(found.values())


def delivered_by_reference(fleet: TheirsFleetSpec) -> list[Json]:
    """What a delivery writes of objects of others: fields in lists, which are left as wholes."""
    written: list[tuple[Resource, str, tuple[str, ...]]]
    if isinstance(fleet, RouteFleetSpec):
        workloads = [each.workload for each in fleet.peers.values() if each.workload]
        written = [(HTTP_ROUTES, fleet.route, (HttpRoutes.rules,))]
        written += [(WORKLOADS[each.kind], each.name, (*each.set, each.replicas)) for each in workloads]
    else:
        assert isinstance(fleet, ReferencedFleetSpec), "objects of others are a Rollout's or a route's"
        theirs, containers = fleet.rollout, ("/spec/template/spec/containers",)
        asked = (DEPLOYMENTS, theirs.workload) if theirs.workload else (ROLLOUTS, theirs.name)
        written = [(*asked, containers), (fleet.route_kind, theirs.route, (ROUTERS[fleet.traffic].rules,))]
    return [_ignored(resource, name, fleet.namespace, fields) for resource, name, fields in written]


def _ignored(resource: Resource, name: str, namespace: str, fields: Iterable[str]) -> Json:
    """As Argo CD is told of one object, with the fields as JSON pointers (RFC 6901)."""
    place = {"namespace": namespace} if namespace else {}
    return {"group": resource.group, "kind": resource.kind, "name": name, **place, "jsonPointers": list(fields)}


def argo_cd_settings(ignored: list[Json]) -> Json:
    """For the `spec` of an Argo CD Application: neither its self-heal nor a sync writes these fields."""
    # Without it the fields are ignored when differences are looked for, and written all the same by the next sync.
    return {"ignoreDifferences": ignored, "syncPolicy": {"syncOptions": ["RespectIgnoreDifferences=true"]}}
