"""Rights as data, and who has them: none for engines; for tidegate and the guard what a delivery needs."""

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
from rollouts.manifests.admission import policy_names
from rollouts.manifests.conventions import canary_service, driver, guard, lease, samples_request, stable_service
from rollouts.manifests.manifest import Placed, Site, manifest
from rollouts.manifests.route_spec import BackendKind, RouteReference
from tidegate.core.model import Json, Value


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


Rights = tuple[Right, ...]


def _may(verbs: str, resource: Resource, names: Iterable[str] = (), subresource: str = "") -> Right:
    return Right(resource=resource, verbs=tuple(verbs.split()), names=tuple(names), subresource=subresource)


def guard_rights(
    delivery: str, rollout: str, route: Resource, route_name: str, workload: str = "", *, pools: Iterable[str] = ()
) -> Rights:
    """In the delivery's namespace; `route` is the kind of object that splits its users, `workload` a Deployment.

    `pools` are InferencePools that its users may reach in place of Services.
    """
    return (
        *((_may("get patch", INFERENCE_POOLS, pools),) if pools else ()),
        *((_may("get patch", DEPLOYMENTS, [workload]),) if workload else ()),
        *_carried(delivery, route, route_name),
        _may("get patch", ROLLOUTS, [rollout]),
        # How a Rollout is promoted and aborted.
        _may("patch", ROLLOUTS, [rollout], "status"),
        _may("list", REPLICA_SETS),
    )


def _carried(delivery: str, route: Resource, route_name: str) -> Rights:
    """For every kind of region: the Lease, the weights, what pods say, and what a guard tells."""
    return (
        # Who carries a delivery is a compare-and-set. RBAC cannot name what is created: the Lease, when it is away.
        _may("create", LEASES),
        _may("get update", LEASES, [lease(delivery)]),
        _may("get patch update", route, [route_name]),
        _may("list", PODS),
        _may("create", EVENTS),
    )


def route_rights(delivery: str, theirs: RouteReference) -> Rights:
    """The same for two backends of a route."""
    peers = theirs.peers.values()
    kinds = {BackendKind.SERVICE: SERVICES, BackendKind.POOL: INFERENCE_POOLS}
    workloads = [each.workload for each in peers if each.workload]
    return (
        *_carried(delivery, HTTP_ROUTES, theirs.route),
        _may("list", ENDPOINT_SLICES),
        *(_may("get", kinds[each.kind], [each.backend]) for each in peers),
        *(_may("get patch", WORKLOADS[each.kind], [each.name]) for each in workloads),
    )


def rights(site: Site) -> Rights:
    """In the namespace of a Rollout that is rendered: to move it, to apply its objects, to read what a doctor reads."""
    moved = guard_rights(site.name, site.name, site.route, site.name)
    # Server-side apply is a patch; of an object that is not there yet it asks for `create` too.
    applied = (
        (_may("create", resource), _may("get patch", resource, names))
        for resource, names in written_objects(site).items()
    )
    return (
        *(each for each in moved if each.resource != EVENTS),
        *(each for pair in applied for each in pair),
        # Written whole, as others write it too: a version that was not looked at is a conflict then.
        _may("update", ROLLOUTS, [site.name]),
        *(_may("get list", each) for each in (ROLLOUTS, REPLICA_SETS, PODS, ANALYSIS_RUNS)),
        *(_may("list", each) for each in (EVENTS, RESOURCE_QUOTAS, ANALYSIS_TEMPLATES)),
        *((_may("get", DEPLOYMENTS, [guard(site.name)]),) if site.release.guard else ()),
        # What engines keep of requests goes when the weight is over, and is taken pod by pod.
        *((_may("delete", CONFIG_MAPS, [samples_request(site.name)]),) if site.release.samples else ()),
        *((_may("create", PODS, subresource="proxy"),) if site.release.samples else ()),
    )


def cluster_rights(site: Site) -> Rights:
    """Outside of the namespace, reading only: whether pods would find a node, which kinds the cluster knows, and which
    policies it holds tidegate to.

    What others run on the nodes is seen only where that decides whether there is room: a node that is bought when it
    is needed has nobody on it.
    """
    names = policy_names(site)
    return (
        _may("list", NODES),
        *(() if site.fleet.nodes.grow else (_may("list", PODS),)),
        _may("get", CUSTOM_RESOURCE_DEFINITIONS),
        *(_may("get", each, names) for each in (ADMISSION_POLICIES, ADMISSION_BINDINGS) if names),
    )


def written_objects(site: Site) -> dict[Resource, tuple[str, ...]]:
    """The objects that a delivery says again and again; empty names where they come from outside."""
    fleet, direct = site.fleet, (stable_service(site.name), canary_service(site.name))
    found: dict[Resource, tuple[str, ...]] = {
        ROLLOUTS: (site.name,),
        SERVICES: direct,
        site.route: (site.name, *direct) if fleet.gateway.direct else (site.name,),
        ANALYSIS_TEMPLATES: (),
        POD_MONITORS: (),
    }
    asked = {
        POD_DISRUPTION_BUDGETS: (fleet.unavailable, site.name),
        CONFIG_MAPS: (site.release.samples, samples_request(site.name)),
        SCALED_OBJECTS: (fleet.autoscale, site.name),
    }
    return found | {resource: (name,) for resource, (there, name) in asked.items() if there}


def access(site: Site) -> tuple[Json, ...]:
    """The engines' service account, which may do nothing and has no token; tidegate's and its rights on request."""
    own = manifest(SERVICE_ACCOUNTS, site.name, site, automountServiceAccountToken=False)
    return (*(() if site.fleet.pod.service_account else (own,)), *(_driver(site) if site.release.driver else ()))


def _driver(site: Site) -> tuple[Json, ...]:
    cluster_role = manifest(
        CLUSTER_ROLES, driver(site.name), site, rules=[right.rule for right in cluster_rights(site)]
    )
    bound = role_binding(cluster_role, site, driver(site.name), CLUSTER_ROLE_BINDINGS)
    return (*account_with(rights(site), site, driver(site.name)), cluster_role, bound)


def access_by_reference(site: Placed, guards: Rights) -> tuple[Json, ...]:
    """A service account for tidegate, where it runs in the cluster, and its Role: what its guard may, but Events.

    No right outside the namespace.
    """
    return account_with(tuple(each for each in guards if each.resource != EVENTS), site, driver(site.name))


def account_with(granted: Rights, site: Placed, name: str) -> tuple[Json, ...]:
    """A service account, its Role, and the binding of the two; all of that name."""
    role = manifest(ROLES, name, site, rules=[right.rule for right in granted])
    account = manifest(SERVICE_ACCOUNTS, name, site, automountServiceAccountToken=False)
    return account, role, role_binding(role, site, name, ROLE_BINDINGS)


def role_binding(role: Json, site: Placed, account: str, kind: Resource) -> Json:
    """The role in the hands of that service account; the binding has the account's name."""
    reference = {"apiGroup": ROLES.group, "kind": role["kind"], "name": role["metadata"]["name"]}
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": site.namespace}
    return manifest(kind, account, site, roleRef=reference, subjects=[subject])
