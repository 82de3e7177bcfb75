"""The fleets that are there already, for commands that start none. Loads little: whoever goes back is in a hurry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from pipelines.ports import Fleet
from pipelines.spec import Delivery
from pipelines.state import StateFolder
from rollouts.cluster.lease import Carrier
from rollouts.manifests.spec import ArgoFleetSpec


@asynccontextmanager
async def standing_fleets(
    spec: Delivery, state: StateFolder, *, patience: timedelta | None = None, carrier: Carrier | None = None
) -> AsyncIterator[Mapping[str, Fleet]]:
    """The fleets that are there already, by region; none when nothing runs on this machine.

    Without a `carrier` those in clusters can only be looked at.
    """
    if isinstance(spec.fleet, ArgoFleetSpec):
        from tidegate.cli.clusters import open_clusters

        async with open_clusters(spec, spec.fleet, patience=patience, counted=False, carrier=carrier) as fleets:
            yield fleets
        return
    from rollouts.adapters.host_client import attach

    host = await attach(state.root)
    yield {region: host.fleet(region) for region in host.regions()} if host else {}
