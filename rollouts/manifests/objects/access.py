"""Service accounts and their rights: none for engines; for tidegate and the guard what a delivery needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollouts.kube.model import AccessReview, Resource
from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    ANALYSIS_RUNS,
    ANALYSIS_TEMPLATES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    HTTP_ROUTES,
    INFERENCE_POOLS,
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
    WORKLOADS,
)
from rollouts.manifests.conventions import (
    canary_service,
    cluster_wide,
    driver,
    guard,
    lease,
    samples_request,
    stable_service,
    warm_pool,
)
from rollouts.manifests.manifest import Placed, Site, manifest
from rollouts.manifests.pod_spec import Scaler
from rollouts.manifests.route_spec import BackendKind, RouteReference
from tidegate.core.model import Json, Value

READ = ("get", "list")
_AS_IS = ("get", "patch")
"""Server-side apply is a patch; of an object that is not there yet it asks for `create` too."""


class Right(Value):
    """One line of a Role."""

    resource: Resource
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Objects that it is about; all when empty. `create` and `list` know no names."""
    subresource: str = ""

    @property
    def rule(self) -> Json:
        """As a Role has it."""
        plural = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        rule: Json = {"apiGroups": [self.resource.group], "resources": [plural], "verbs": list(self.verbs)}
        return {**rule, "resourceNames": list(self.names)} if self.names else rule

    def questions(self, namespace: str | None = None) -> Iterator[AccessReview]:
        """As the API server is asked whether one has it: one question for each verb and name."""
        for verb in self.verbs:
            for name in self.names or ("",):
                yield AccessReview(
                    verb=verb, resource=self.resource, name=name, subresource=self.subresource, namespace=namespace
                )


def rights(site: Site) -> tuple[Right, ...]:
    """In the namespace: what is read, and the very objects that are written."""
    read = [Right(resource=each, verbs=READ) for each in (ROLLOUTS, REPLICA_SETS, PODS, ANALYSIS_RUNS)]
    read += [Right(resource=each, verbs=("list",)) for each in (EVENTS, RESOURCE_QUOTAS, ANALYSIS_TEMPLATES)]
    kept = [right for resource, names in written_objects(site).items() for right in _kept(resource, names)]
    return (
        *read,
        *kept,
        # Written whole, as others write it too: a version that was not looked at is a conflict then.
        Right(resource=ROLLOUTS, verbs=("update",), names=(site.name,)),
        Right(resource=site.route, verbs=("update",), names=(site.route_name,)),
        # Who carries the delivery is a compare-and-set.
        Right(resource=LEASES, verbs=("create",)),
        Right(resource=LEASES, verbs=("get", "update"), names=(lease(site.name),)),
        # How a Rollout is promoted and aborted.
        Right(resource=ROLLOUTS, verbs=("patch",), names=(site.name,), subresource="status"),
        *_of_samples(site),
        # For the doctor only.
        *((Right(resource=DEPLOYMENTS, verbs=("get",), names=(guard(site.name),)),) if site.guard else ()),
    )


def _of_samples(site: Site) -> tuple[Right, ...]:
    """What engines are to keep goes when the weight is over; what they have kept is taken pod by pod, whose names
    are unknown before.
    """
    if not site.samples:
        return ()
    return (
        Right(resource=CONFIG_MAPS, verbs=("delete",), names=(samples_request(site.name),)),
        Right(resource=PODS, verbs=("create",), subresource="proxy"),
    )


def cluster_rights(site: Site) -> tuple[Right, ...]:
    """Outside of the namespace, reading only: whether pods would find a node, which kinds the cluster knows, and which
    policies it holds tidegate to.

    What others run on the nodes is seen only where that decides whether there is room: a node that is bought when it
    is needed has nobody on it.
    """
    taken = () if site.fleet.nodes.grow else (Right(resource=PODS, verbs=("list",)),)
    names = policy_names(site)
    return (
        Right(resource=NODES, verbs=("list",)),
        *taken,
        Right(resource=CUSTOM_RESOURCE_DEFINITIONS, verbs=("get",)),
        *(Right(resource=each, verbs=("get",), names=names) for each in (ADMISSION_POLICIES, ADMISSION_BINDINGS)),
    )


def policy_names(site: Site) -> tuple[str, ...]:
    """Of the policies that hold tidegate to its own objects, and of their bindings."""
    parts = ("objects", "rollouts", *(("warm-pool",) if site.fleet.warm_pool else ()), "pods")
    return tuple(cluster_wide(site.fleet.namespace, f"{site.name}-{part}") for part in parts)


def access(site: Site) -> tuple[Json, ...]:
    """Two service accounts, and what tidegate's may do. That of the engines may do nothing and has no token."""
    may = driver(site.name)
    role, cluster_role = (
        manifest(kind, may, site, rules=[right.rule for right in granted])
        for kind, granted in ((ROLES, rights(site)), (CLUSTER_ROLES, cluster_rights(site)))
    )
    theirs = site.fleet.pod.service_account
    return (
        *(() if theirs else (manifest(SERVICE_ACCOUNTS, site.name, site, automountServiceAccountToken=False),)),
        manifest(SERVICE_ACCOUNTS, may, site, automountServiceAccountToken=False),
        role,
        role_binding(role, site, may, ROLE_BINDINGS),
        cluster_role,
        role_binding(cluster_role, site, may, CLUSTER_ROLE_BINDINGS),
    )


def written_objects(site: Site) -> dict[Resource, tuple[str, ...]]:
    """The objects that a delivery says again and again; empty names where they come from outside."""
    fleet, direct = site.fleet, (stable_service(site.name), canary_service(site.name))
    written_objects: dict[Resource, tuple[str, ...]] = {
        ROLLOUTS: (site.name,),
        SERVICES: direct,
        site.route: (site.route_name, *direct) if fleet.gateway.direct else (site.route_name,),
        POD_DISRUPTION_BUDGETS: (site.name,),
        ANALYSIS_TEMPLATES: (),
        POD_MONITORS: (),
    }
    if site.samples:
        written_objects[CONFIG_MAPS] = (samples_request(site.name),)
    if fleet.autoscale:
        written_objects[SCALED_OBJECTS if fleet.autoscale.by is Scaler.KEDA else HORIZONTAL_POD_AUTOSCALERS] = (
            site.name,
        )
    if fleet.warm_pool:
        written_objects[DEPLOYMENTS] = (warm_pool(site.name),)
    return written_objects


def _kept(resource: Resource, names: Iterable[str]) -> tuple[Right, Right]:
    return Right(resource=resource, verbs=("create",)), Right(resource=resource, verbs=_AS_IS, names=tuple(names))


def access_by_reference(site: Placed, guards: Iterable[Right]) -> tuple[Json, ...]:
    """A service account for tidegate, where it runs in the cluster, and its Role: what its guard may, but Events.

    No right outside the namespace.
    """
    may = driver(site.name)
    role = manifest(ROLES, may, site, rules=[each.rule for each in guards if each.resource != EVENTS])
    account = manifest(SERVICE_ACCOUNTS, may, site, automountServiceAccountToken=False)
    return account, role, role_binding(role, site, may, ROLE_BINDINGS)


def role_binding(role: Json, site: Placed, account: str, kind: Resource) -> Json:
    """The role in the hands of that service account; the binding has the account's name."""
    reference = {"apiGroup": ROLES.group, "kind": role["kind"], "name": role["metadata"]["name"]}
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": site.namespace}
    return manifest(kind, account, site, roleRef=reference, subjects=[subject])


def guard_rights(
    delivery: str, rollout: str, route: Resource, route_name: str, workload: str = "", *, pools: tuple[str, ...] = ()
) -> tuple[Right, ...]:
    """In the delivery's namespace; `route` is the kind of object that splits its users, `workload` a Deployment.

    `pools` are InferencePools that its users may reach in place of Services.
    """
    return (
        *((Right(resource=INFERENCE_POOLS, verbs=_AS_IS, names=pools),) if pools else ()),
        *((Right(resource=DEPLOYMENTS, verbs=_AS_IS, names=(workload,)),) if workload else ()),
        *_carried(delivery, route, route_name),
        Right(resource=ROLLOUTS, verbs=("get", "patch"), names=(rollout,)),
        Right(resource=ROLLOUTS, verbs=("patch",), names=(rollout,), subresource="status"),
        Right(resource=REPLICA_SETS, verbs=("list",)),
    )


def _carried(delivery: str, route: Resource, route_name: str) -> tuple[Right, ...]:
    """For every kind of region: the Lease, the weights, what pods say, and what a guard tells."""
    return (
        # RBAC cannot name what is created: the Lease, where somebody deleted it.
        Right(resource=LEASES, verbs=("create",)),
        Right(resource=LEASES, verbs=("get", "update"), names=(lease(delivery),)),
        Right(resource=route, verbs=("get", "patch", "update"), names=(route_name,)),
        Right(resource=PODS, verbs=("list",)),
        Right(resource=EVENTS, verbs=("create",)),
    )


def route_rights(delivery: str, theirs: RouteReference) -> tuple[Right, ...]:
    """The same for two backends of a route."""
    peers = theirs.peers.values()
    kinds = {BackendKind.SERVICE: SERVICES, BackendKind.POOL: INFERENCE_POOLS}
    workloads = [each.workload for each in peers if each.workload]
    return (
        *_carried(delivery, HTTP_ROUTES, theirs.route),
        Right(resource=ENDPOINT_SLICES, verbs=("list",)),
        *(Right(resource=kinds[each.kind], verbs=("get",), names=(each.backend,)) for each in peers),
        *(Right(resource=WORKLOADS[each.kind], verbs=_AS_IS, names=(each.name,)) for each in workloads),
    )
