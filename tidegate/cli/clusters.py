"""Opens the clusters of a delivery's regions, each by its own context, and closes them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from pipelines.cluster_fleets import argo_fleet
from pipelines.spec import Delivery
from rollouts.adapters.kube.connect import connect
from rollouts.cluster.fleet import ArgoFleet
from rollouts.cluster.keeping import keep_renewing
from rollouts.cluster.lease import Carrier
from rollouts.cluster.ports import Served
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.clock import SystemClock


@asynccontextmanager
async def open_clusters(
    spec: Delivery,
    fleet: ArgoFleetSpec,
    *,
    patience: timedelta | None = None,
    counted: bool = True,
    carrier: Carrier | None = None,
    public_keys: str = "",
) -> AsyncIterator[Mapping[str, ArgoFleet]]:
    """The fleet of each region. Nobody is asked anything yet.

    Args:
        spec: the delivery.
        fleet: the spec's.
        patience: how long a silent region is waited for; the spec's when it is None.
        counted: whether arrivals are proven by what Prometheus counts; who only goes back has no use for it.
        carrier: says in each region where it has begun that it lives, until the end; whoever is none only looks.
        public_keys: of whoever builds engines, in PEM; one of them has to have signed every engine that starts.

    Raises:
        NoAccess: the kubeconfig has no such context, or cannot be read.
    """
    clock, name = SystemClock(), spec.metadata.name
    async with AsyncExitStack() as stack:
        fleets = {}
        for region in spec.regions.names:
            there = fleet.regions[region]
            cluster = connect(there.context or None, clock=clock, namespace=fleet.namespace)
            stack.push_async_callback(cluster.close)
            served = _counting(there.prometheus.url, name, region) if counted else None
            fleets[region] = argo_fleet(
                spec,
                fleet,
                region,
                cluster=cluster,
                clock=clock,
                served=served,
                patience=patience,
                carrier=carrier,
                public_keys=public_keys,
            )
        async with _carried(fleets, carrier):
            yield fleets


@asynccontextmanager
async def _carried(fleets: Mapping[str, ArgoFleet], carrier: Carrier | None) -> AsyncIterator[None]:
    if carrier is None:
        yield
        return
    tasks = [asyncio.create_task(keep_renewing(fleet, SystemClock())) for fleet in fleets.values()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.gather(*(fleet.leave() for fleet in fleets.values()))


def _counting(url: str, delivery: str, region: str) -> Served:
    # Not above: it brings half of what a rollback would load before it sends its first request.
    from pipelines.adapters.served import ServedByPrometheus

    return ServedByPrometheus(url, delivery=delivery, region=region)
