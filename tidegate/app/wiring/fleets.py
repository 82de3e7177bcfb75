"""The fleets that run already. Loads little: a rollback is in a hurry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Protocol, runtime_checkable

from pipelines.ports import Fleet
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from rollouts.cluster.carrier import Carrier
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import CarrierHeartbeat


class FleetsOpener(Protocol):
    """Opens the fleets that are there already; `standing_fleets` opens those that a spec describes."""

    def __call__(
        self, spec: Delivery, state: StateFolder, *, patience: timedelta | None = None, carrier: Carrier | None = None
    ) -> AbstractAsyncContextManager[Mapping[str, Fleet]]:
        """By region."""
        ...


@runtime_checkable
class CarriedFleet(Protocol):
    """A fleet that knows who carries its trial."""

    async def carried(self) -> CarrierHeartbeat | None:
        """None when nobody does."""
        ...


@asynccontextmanager
async def standing_fleets(
    spec: Delivery, state: StateFolder, *, patience: timedelta | None = None, carrier: Carrier | None = None
) -> AsyncIterator[Mapping[str, Fleet]]:
    """The fleets that are there already, by region; none when nothing runs on this machine.

    Without a `carrier` those in clusters can only be looked at.
    """
    if isinstance(spec.fleet, ArgoFleetSpec):
        from tidegate.app.wiring.clusters import open_clusters

        async with open_clusters(spec, spec.fleet, patience=patience, counted=False, carrier=carrier) as fleets:
            yield fleets
        return
    from rollouts.adapters.host_client import attach

    host = await attach(state.root)
    yield {region: host.fleet(region) for region in host.regions()} if host else {}
