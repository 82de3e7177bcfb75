"""Rights as data, and who has them: none for engines; for tidegate and the guard what a delivery needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from rollouts.kube.resources import (
    ADMISSION_BINDINGS,
    ADMISSION_POLICIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    HTTP_ROUTES,
    RESOURCES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    WORKLOADS,
    AccessReview,
    Resource,
)
from rollouts.manifests.admission import policy_names
from rollouts.manifests.conventions import canary_service, driver, guard, lease, samples_request, stable_service
from rollouts.manifests.manifest import Place, Site, manifest
from rollouts.manifests.theirs_spec import RouteReference
from tidegate.core.model import Json


class Right(NamedTuple):
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
        for verb, name in product(self.verbs, self.names or ("",)):
            yield AccessReview(
                verb=verb, resource=self.resource, name=name, subresource=self.subresource, namespace=namespace
            )


Rights = tuple[Right, ...]

_BY_PLURAL = {each.plural: each for each in RESOURCES}


def _rights(rows: str, **names: str) -> Rights:
    """From rows of verbs, resources as a Role names them, and the names of objects, all of them when it has none."""
    found = []
    for row in rows.strip().splitlines():
        verbs, resources, *objects = row.format(**names).split()
        for plural, _, below in (each.partition("/") for each in resources.split(",")):
            kind, may = _BY_PLURAL[plural], tuple(verbs.split(","))
            found.append(Right(resource=kind, verbs=may, names=tuple(objects), subresource=below))
    return tuple(found)


# Who carries a delivery is a compare-and-set. RBAC cannot name what is created: the Lease, when it is away.
CARRIED = """
create leases
get,update leases {lease}
get,patch,update {kind} {route}
list pods
"""
"""For every kind of region: the Lease, the weights, and what pods say."""
MOVED = """
get,patch rollouts {rollout}
patch rollouts/status {rollout}
list replicasets
"""
"""Besides, of a Rollout; its status is how it is promoted and aborted."""
# Written whole, as others write it too: a version that was not looked at is a conflict then.
LOOKED_AT = """
update rollouts {name}
get,list rollouts,replicasets,pods
list events
"""
"""Besides, of a Rollout that is rendered, with what a doctor reads."""
ASKED = "get,create services/proxy"
"""Of one arm, through the API server."""
SAMPLED = """
delete configmaps {samples}
create pods/proxy
"""
"""What engines keep of requests goes when the weight is over, and is taken pod by pod."""


def guard_rights(
    delivery: str, rollout: str, route: Resource, route_name: str, workload: str = "", *, pools: Iterable[str] = ()
) -> Rights:
    """In the delivery's namespace; `route` is the kind of object that splits its users, `workload` a Deployment.

    `pools` are InferencePools that its users may reach in place of Services.
    """
    named = " ".join(pools)
    return (
        *(_rights(f"get,patch inferencepools {named}") if named else ()),
        *(_rights(f"get,patch deployments {workload}") if workload else ()),
        *_rights(CARRIED, lease=lease(delivery), kind=route.plural, route=route_name),
        *_rights(MOVED, rollout=rollout),
    )


def route_rights(delivery: str, theirs: RouteReference) -> Rights:
    """The same for two backends of a route."""
    workloads = [each.workload for each in theirs.peers.values() if each.workload]
    rows = [
        "list endpointslices",
        *(f"get {str(each.kind).lower()}s {each.backend}" for each in theirs.peers.values()),
        *(f"get,patch {WORKLOADS[each.kind].plural} {each.name}" for each in workloads),
    ]
    carried = _rights(CARRIED, lease=lease(delivery), kind=HTTP_ROUTES.plural, route=theirs.route)
    return (*carried, *_rights("\n".join(rows)))


def asking_rights(services: Iterable[str]) -> Rights:
    """To ask these Services through the API server; a Role's names would need their ports, so it is for any Service."""
    return _rights(f"get services {named}\n{ASKED}") if (named := " ".join(services)) else ()


def rights(site: Site) -> Rights:
    """In the namespace of a Rollout that is rendered: to move it, to apply its objects, to read what a doctor reads."""
    fleet, name, samples, guarded = site.fleet, site.name, samples_request(site.name), guard(site.name)
    # What a delivery says again and again, by its kind and names; none where the names come from outside.
    applied = {
        "rollouts": name,
        "services": f"{stable_service(name)} {canary_service(name)}",
        fleet.route_kind.plural: name,
        "analysistemplates": "",
        "podmonitors": "",
        **({"poddisruptionbudgets": name} if fleet.unavailable else {}),
        **({"configmaps": samples} if site.release.samples else {}),
        **({"scaledobjects": name} if fleet.autoscale else {}),
    }
    return (
        *guard_rights(name, name, fleet.route_kind, name),
        # Server-side apply is a patch; of an object that is not there yet it asks for `create` too.
        *_rights("\n".join(f"create {kind}\nget,patch {kind} {names}" for kind, names in applied.items())),
        *_rights(LOOKED_AT, name=name),
        *(_rights(f"get deployments {guarded}") if site.release.guard else ()),
        *(_rights(ASKED) if site.release.asked else ()),
        *(_rights(SAMPLED, samples=samples) if site.release.samples else ()),
    )


def cluster_rights(site: Site) -> Rights:
    """Outside of the namespace, reading only: which policies hold tidegate."""
    names = " ".join(policy_names(site))
    rows = [f"get {each.plural} {names}" for each in (ADMISSION_POLICIES, ADMISSION_BINDINGS) if names]
    return _rights("\n".join(rows))


def access(site: Site) -> tuple[Json, ...]:
    """The engines' service account, which may do nothing and has no token; tidegate's and its rights on request."""
    own = manifest(SERVICE_ACCOUNTS, site.name, site, automountServiceAccountToken=False)
    accounts = () if site.fleet.pod.service_account else (own,)
    if not site.release.driver:
        return accounts
    name, rules = driver(site.name), [right.rule for right in cluster_rights(site)]
    everywhere = _bound(CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, rules, site, name) if rules else ()
    return (*accounts, *account_with(rights(site), site, name), *everywhere)


def account_with(granted: Rights, site: Site | Place, name: str) -> tuple[Json, ...]:
    """A service account, its Role, and the binding of the two; all of that name."""
    account = manifest(SERVICE_ACCOUNTS, name, site, automountServiceAccountToken=False)
    return account, *_bound(ROLES, ROLE_BINDINGS, [right.rule for right in granted], site, name)


def _bound(kind: Resource, binding: Resource, rules: list[Json], site: Site | Place, name: str) -> tuple[Json, Json]:
    """The role, and its binding to the service account of the same name."""
    role = manifest(kind, name, site, rules=rules)
    reference = {"apiGroup": kind.group, "kind": kind.kind, "name": role["metadata"]["name"]}
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": name, "namespace": site.namespace}
    return role, manifest(binding, name, site, roleRef=reference, subjects=[subject])
