"""Releases of others that are adopted: Rollouts whose traffic Argo Rollouts routes or nobody does, and a Deployment."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from fakes.clusters.region import (
    DELIVERER,
    NAME,
    NAMESPACE,
    PODS_OF_OTHERS,
    ClusterRegion,
    a_fleet,
    a_release,
    endpoints,
    user_shares,
)
from fakes.kube.store import Event

from rollouts.adoption.adoption import Adoption
from rollouts.adoption.deployments.side_by_side import SideBySideAdoption
from rollouts.adoption.model import AdoptedVersion
from rollouts.cluster.carrier import Carrier
from rollouts.kube.resources import DEPLOYMENTS, HTTP_ROUTES, SERVICES, resource_of
from rollouts.model import Engine
from tidegate.core.model import Json

WHO = AdoptedVersion(delivery=NAME, region="eu-west-1", version="1", digest="sha256-of-1")
USERS = "chat"
"""Their one Service, where no traffic is split."""
DRAIN = 60.0
"""Seconds that a Deployment's pods have for answers that are on their way."""


def split_by_weight() -> tuple[Json, ...]:
    """Two Services and a route, whose weights Argo Rollouts sets."""
    return a_release(NAME, NAMESPACE)


def one_service() -> tuple[Json, ...]:
    """One Service, to which the route leads all users, and at which others of the cluster ask; pods are the weights."""
    stable, _, route, rollout = deepcopy(a_release(NAME, NAMESPACE))
    stable["metadata"]["name"] = USERS
    stable["spec"]["ports"] = [{"name": "web", "port": 8080, "targetPort": 8000}]
    route["spec"]["rules"] = [
        {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": USERS, "port": 8080}]}
    ]
    rollout["spec"]["strategy"] = {"canary": {"maxSurge": 1, "maxUnavailable": 0, "steps": [{"setWeight": 25}]}}
    # Nobody named a port.
    rollout["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8000}]
    return stable, route, rollout


def a_deployment() -> tuple[Json, ...]:
    """One Service and its route as `one_service`, of a Deployment."""
    service, route, rollout = one_service()
    spec = {key: rollout["spec"][key] for key in ("replicas", "selector", "template")}
    kind = {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind}
    return service, route, {**rollout, **kind, "spec": {**spec, "strategy": {"type": "RollingUpdate"}}}


RELEASES = {"split by weight": split_by_weight, "one Service": one_service}


async def a_region_of_others(bodies: Sequence[Json], **changes: Any) -> ClusterRegion:
    """A region where these serve; `changes` are fields of the fleet."""
    region = ClusterRegion(spec=a_fleet("eu-west-1", replicas=PODS_OF_OTHERS, **changes), retry_seconds=30)
    for body in bodies:
        region.cluster.create(resource_of(body), body, namespace=NAMESPACE, manager="helm")
    await region.time.sleep(60)
    return region


def adoption_of(region: ClusterRegion, carrier: Carrier = DELIVERER) -> Adoption:
    """What adopts that region's Rollout, and gives it back."""
    return Adoption(
        region.place(30),
        cluster=region.client(),
        routes=region.routes,
        wanted=region.plainly(Engine(version="1", digest=WHO.digest, model=NAME, image="none")),
        clock=region.time,
        carrier=carrier,
    )


def side_by_side_of(
    region: ClusterRegion,
    carrier: Carrier = DELIVERER,
    *,
    deployment: str = "",
    surge: int | None = None,
    start_seconds: float = 120,
) -> SideBySideAdoption:
    """What adopts that region's Deployment, and gives it back."""
    adoption, cluster = adoption_of(region, carrier), region.client()
    return SideBySideAdoption(
        region.place(30).model_copy(update={"start_seconds": start_seconds}),
        adoption,
        cluster=cluster,
        clock=region.time,
        drain_seconds=DRAIN,
        deployment=deployment,
        surge=surge,
    )


class ReachedPods:
    """The fewest ready pods to which users of the region's route were led, looked at after every change."""

    def __init__(self, region: ClusterRegion) -> None:
        self._region = region
        self.fewest = self.now
        region.cluster.on_change(self._note)

    @property
    def now(self) -> int:
        """Ready pods of all Services that users are led to."""
        cluster, found = self._region.cluster, set[str]()
        for (_, name), share in user_shares(self._region.route).items():
            if share and (service := cluster.find(SERVICES, name)):
                found |= endpoints(cluster, service)
        return len(found)

    def _note(self, _: Event) -> None:
        if self._region.cluster.find(HTTP_ROUTES, self._region.route_name):
            self.fewest = min(self.fewest, self.now)
