"""Releases of others that are adopted: Rollouts whose traffic Argo Rollouts routes or nobody does."""

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
)

from rollouts.adoption.adoption import Adoption
from rollouts.adoption.model import AdoptedVersion
from rollouts.cluster.carrier import Carrier
from rollouts.kube.resources import resource_of
from rollouts.model import Engine
from tidegate.core.model import Json

WHO = AdoptedVersion(delivery=NAME, region="eu-west-1", version="1", digest="sha256-of-1")
USERS = "chat"
"""Their one Service, where no traffic is split."""


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
