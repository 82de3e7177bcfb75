"""Opens the clusters of a delivery's regions, each by its own context, and closes them again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from pipelines.adapters.served import ServedByPrometheus
from pipelines.cluster_fleets import argo_fleet
from pipelines.spec import Delivery
from rollouts.adapters.kube.connect import connect
from rollouts.cluster.fleet import ArgoFleet
from rollouts.manifests.spec import ArgoFleetSpec
from tidegate.core.clock import SystemClock


@asynccontextmanager
async def open_clusters(
    spec: Delivery, fleet: ArgoFleetSpec, *, patience: timedelta | None = None
) -> AsyncIterator[Mapping[str, ArgoFleet]]:
    """The fleet of each region. Nobody is asked anything yet; `patience` is the spec's when it is None.

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
            served = ServedByPrometheus(there.prometheus.url, delivery=name, region=region)
            fleets[region] = argo_fleet(
                spec, fleet, region, cluster=cluster, clock=clock, served=served, patience=patience
            )
        yield fleets
