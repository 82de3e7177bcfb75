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
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    LEADER_WORKER_SETS,
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
    SERVICE_MONITORS,
    SERVICES,
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
from rollouts.manifests.manifest import Site, manifest
from rollouts.manifests.pod_spec import Scaler
from tidegate.core.model import Json, Value

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
    seen, listed = _seen(site)
    read = [Right(resource=each, verbs=READ) for each in seen]
    read += [Right(resource=each, verbs=("list",)) for each in listed]
    kept = [right for resource, names in written_objects(site).items() for right in _kept(resource, names)]
    return (
        *read,
        *kept,
        *_of_workload(site),
        Right(resource=site.route, verbs=("update",), names=(site.route_name,)),
        # Who carries the delivery is a compare-and-set.
        Right(resource=LEASES, verbs=("create",)),
        Right(resource=LEASES, verbs=("get", "update"), names=(lease(site.name),)),
        *_of_status(site),
        *_of_samples(site),
        # For the doctor only.
        *((Right(resource=DEPLOYMENTS, verbs=("get",), names=(guard(site.name),)),) if site.guard else ()),
    )


def _seen(site: Site) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """What is read whole, and what is listed."""
    listed = (EVENTS, RESOURCE_QUOTAS)
    if site.fleet.multi_node:
        return (LEADER_WORKER_SETS, PODS), listed
    return (ROLLOUTS, REPLICA_SETS, PODS, ANALYSIS_RUNS), (*listed, ANALYSIS_TEMPLATES)


def _of_workload(site: Site) -> tuple[Right, ...]:
    """What makes engines. Sets have a new name for each version; a Rollout is written whole, as others write it too: a
    version that was not looked at is a conflict then.
    """
    if site.fleet.multi_node:
        return (Right(resource=LEADER_WORKER_SETS, verbs=("create", "delete")),)
    return (Right(resource=ROLLOUTS, verbs=("update",), names=(site.name,)),)


def _of_status(site: Site) -> tuple[Right, ...]:
    """How a Rollout is promoted and aborted."""
    if site.fleet.multi_node:
        return ()
    return (Right(resource=ROLLOUTS, verbs=("patch",), names=(site.name,), subresource="status"),)


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
    engines = ("leaders", "workers") if site.fleet.multi_node else ("rollouts",)
    parts = ("objects", *engines, *(("warm-pool",) if site.fleet.warm_pool else ()), "pods")
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
        **({} if fleet.multi_node else {ROLLOUTS: (site.name,)}),
        SERVICES: direct,
        site.route: (site.route_name, *direct) if fleet.gateway.direct else (site.route_name,),
        POD_DISRUPTION_BUDGETS: (site.name,),
        **({SERVICE_MONITORS: ()} if fleet.multi_node else {ANALYSIS_TEMPLATES: ()}),
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


def role_binding(role: Json, site: Site, account: str, kind: Resource) -> Json:
    """The role in the hands of that service account; the binding has the account's name."""
    reference = {"apiGroup": ROLES.group, "kind": role["kind"], "name": role["metadata"]["name"]}
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": site.fleet.namespace}
    return manifest(kind, account, site, roleRef=reference, subjects=[subject])


def guard_rights(
    delivery: str, route: Resource, route_name: str = "", *, multi_node: bool = False
) -> tuple[Right, ...]:
    """In the delivery's namespace; `route` is the kind that splits its users, named as the delivery when empty."""
    services = (stable_service(delivery), canary_service(delivery))
    writes: tuple[Right, ...] = (
        Right(resource=ROLLOUTS, verbs=("get", "patch"), names=(delivery,)),
        Right(resource=ROLLOUTS, verbs=("patch",), names=(delivery,), subresource="status"),
    )
    if multi_node:
        writes = (Right(resource=SERVICES, verbs=("get", "patch"), names=services),)
    return (
        # RBAC cannot name what is created: the Lease, where somebody deleted it.
        Right(resource=LEASES, verbs=("create",)),
        Right(resource=LEASES, verbs=("get", "update"), names=(lease(delivery),)),
        *writes,
        Right(resource=route, verbs=("get", "patch", "update"), names=(route_name or delivery,)),
        *(
            (Right(resource=LEADER_WORKER_SETS, verbs=("list", "delete")),)
            if multi_node
            else (Right(resource=REPLICA_SETS, verbs=("list",)),)
        ),
        Right(resource=PODS, verbs=("list",)),
        Right(resource=EVENTS, verbs=("create",)),
    )
