"""Who may do what: engines nothing at all, tidegate just what a delivery and its checks ask of the cluster."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.kube.model import Json, Resource
from rollouts.kube.resources import (
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    HTTP_ROUTES,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_MONITORS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    ROLLOUTS,
    SCALED_OBJECTS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VIRTUAL_SERVICES,
)
from rollouts.manifests.conventions import canary_service, driver, lease, stable_service, warm_pool
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.scaling_spec import Scaler
from rollouts.manifests.traffic_spec import Traffic
from tidegate.core.model import Value

READ = ("get", "list", "watch")
_AS_IS = ("get", "patch")
"""Server-side apply is a patch; of an object that is not there yet it asks for `create` too."""


class Right(Value):
    """One line of a Role."""

    resource: Resource
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Objects that it is about; all when empty. `create`, `list` and `watch` know no names."""
    subresource: str = ""


def rights(site: Site) -> tuple[Right, ...]:
    """In the namespace: what is read, and the very objects that are written."""
    seen = (ROLLOUTS, REPLICA_SETS, PODS, ANALYSIS_RUNS)
    read = [Right(resource=each, verbs=READ) for each in seen]
    read += [Right(resource=each, verbs=("list",)) for each in (EVENTS, RESOURCE_QUOTAS, ANALYSIS_TEMPLATES)]
    kept = [right for resource, names in _written(site).items() for right in _kept(resource, names)]
    return (
        *read,
        *kept,
        # Written whole where somebody else writes too: a version that was not looked at is a conflict then.
        *(Right(resource=each, verbs=("update",), names=(site.name,)) for each in (ROLLOUTS, _route(site))),
        # Who carries the delivery is a compare-and-set.
        Right(resource=LEASES, verbs=("create",)),
        Right(resource=LEASES, verbs=("get", "update"), names=(lease(site.name),)),
        Right(resource=ROLLOUTS, verbs=("patch",), names=(site.name,), subresource="status"),
    )


def cluster_rights() -> tuple[Right, ...]:
    """Outside of the namespace, reading only: whether pods would find a node, and which kinds the cluster knows."""
    return (
        Right(resource=NODES, verbs=("list",)),
        Right(resource=PODS, verbs=("list",)),
        Right(resource=CUSTOM_RESOURCE_DEFINITIONS, verbs=("get",)),
    )


def access(site: Site) -> tuple[Json, ...]:
    """Two service accounts, and what tidegate's may do. That of the engines may do nothing and has no token."""
    may = driver(site.name)
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": may, "namespace": site.fleet.namespace}
    role, cluster_role = (
        manifest(kind, may, site, rules=[_rule(right) for right in granted])
        for kind, granted in ((ROLES, rights(site)), (CLUSTER_ROLES, cluster_rights()))
    )
    return (
        manifest(SERVICE_ACCOUNTS, site.name, site, automountServiceAccountToken=False),
        manifest(SERVICE_ACCOUNTS, may, site, automountServiceAccountToken=False),
        role,
        _bound(role, site, subject, ROLE_BINDINGS),
        cluster_role,
        _bound(cluster_role, site, subject, CLUSTER_ROLE_BINDINGS),
    )


def _written(site: Site) -> dict[Resource, tuple[str, ...]]:
    """The objects that a delivery says again and again; empty names where they come from outside."""
    fleet, direct = site.fleet, (stable_service(site.name), canary_service(site.name))
    written: dict[Resource, tuple[str, ...]] = {
        ROLLOUTS: (site.name,),
        SERVICES: direct,
        _route(site): (site.name, *direct) if fleet.gateway.direct else (site.name,),
        POD_DISRUPTION_BUDGETS: (site.name,),
        ANALYSIS_TEMPLATES: (),
        POD_MONITORS: (),
    }
    if fleet.autoscale:
        written[SCALED_OBJECTS if fleet.autoscale.by is Scaler.KEDA else HORIZONTAL_POD_AUTOSCALERS] = (site.name,)
    if fleet.warm_pool:
        written[DEPLOYMENTS] = (warm_pool(site.name),)
    return written


def _route(site: Site) -> Resource:
    return VIRTUAL_SERVICES if site.fleet.traffic is Traffic.ISTIO else HTTP_ROUTES


def _kept(resource: Resource, names: Iterable[str]) -> tuple[Right, Right]:
    return Right(resource=resource, verbs=("create",)), Right(resource=resource, verbs=_AS_IS, names=tuple(names))


def _rule(right: Right) -> Json:
    resource = right.resource
    plural = f"{resource.plural}/{right.subresource}" if right.subresource else resource.plural
    rule: Json = {"apiGroups": [resource.group], "resources": [plural], "verbs": list(right.verbs)}
    return {**rule, "resourceNames": list(right.names)} if right.names else rule


def _bound(role: Json, site: Site, subject: Json, kind: Resource) -> Json:
    reference = {"apiGroup": ROLES.group, "kind": role["kind"], "name": role["metadata"]["name"]}
    return manifest(kind, driver(site.name), site, roleRef=reference, subjects=[subject])
