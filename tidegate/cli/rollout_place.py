"""Which Rollout of which cluster a command means, and the way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.clock import Clock
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from pipelines.spec import Delivery
    from rollouts.adapters.kube.client import KubeClient
    from rollouts.manifests.spec import ArgoFleetSpec


@dataclass(frozen=True)
class Asked:
    """As the options say it; None where they say nothing."""

    name: str | None
    context: str | None
    namespace: str | None
    spec: Path | None
    region: str | None


@dataclass(frozen=True)
class Place:
    """One namespace of one cluster, and a Rollout there."""

    name: str
    """Empty when no certain one is meant."""
    context: str | None
    """None for the kubeconfig's current one, or the cluster that we run in."""
    namespace: str | None
    """None for the context's."""


def place_of(asked: Asked, *, named: bool = True) -> Place:
    """What the options mean together; those that are given overrule the spec.

    Raises:
        UsageError: no name where one is needed, a region without its spec, or a spec without clusters.
        SpecError: when the spec is wrong.
    """
    if asked.spec is None:
        if asked.region:
            raise UsageError("--region: a region of which delivery?", hint="give --spec delivery.yaml too")
        if named and not asked.name:
            raise UsageError("which Rollout?", hint="give its NAME, or --spec delivery.yaml")
        return Place(asked.name or "", asked.context, asked.namespace)
    spec = _read(asked.spec)
    fleet = clusters_of(spec)
    region = fleet.regions[region_of(fleet, asked.region)]
    return Place(
        asked.name or spec.metadata.name, asked.context or region.context or None, asked.namespace or fleet.namespace
    )


@asynccontextmanager
async def opened(place: Place, clock: Clock) -> AsyncIterator[KubeClient]:
    """A client of the cluster, closed at the end."""
    from rollouts.adapters.kube.connect import connect

    client = connect(place.context, clock=clock, namespace=place.namespace)
    try:
        yield client
    finally:
        await client.close()


def clusters_of(spec: Delivery) -> ArgoFleetSpec:
    """The delivery's fleet of clusters.

    Raises:
        UsageError: when its fleet is another one.
    """
    from rollouts.manifests.spec import ArgoFleetSpec

    if not isinstance(spec.fleet, ArgoFleetSpec):
        raise UsageError("the fleet of this delivery is no cluster", hint="set `fleet.kind: argo`")
    return spec.fleet


def region_of(fleet: ArgoFleetSpec, wanted: str | None) -> str:
    """A region of the fleet; its only one needs not be said.

    Raises:
        UsageError: when there is no such region, or none is said of several.
    """
    known = list(fleet.regions)
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted not in known:
        found = "no region" if wanted is None else f"region {wanted!r}"
        raise UsageError(f"--region: found {found}; expected one of {', '.join(known)}")
    return wanted


def _read(path: Path) -> Delivery:
    from pipelines.spec import Delivery
    from tidegate.core.spec import load_spec

    return load_spec(path, Delivery)
