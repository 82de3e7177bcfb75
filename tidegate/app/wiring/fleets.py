"""The fleets that run already, and who carries a delivery there. Loads little: a rollback is in a hurry."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Protocol
from uuid import uuid4

from pipelines.ports import Fleet
from pipelines.spec.delivery import Delivery
from pipelines.state import StateFolder
from registry.adapters.mlflow_ledger import MlflowLedger
from rollouts.cluster.carrier import Carrier
from rollouts.manifests.spec import ArgoFleetSpec


class FleetsOpener(Protocol):
    """Opens the fleets that are there already; `standing_fleets` opens those that a spec describes."""

    def __call__(
        self, spec: Delivery, state: StateFolder, *, patience: timedelta | None = None, carrier: Carrier | None = None
    ) -> AbstractAsyncContextManager[Mapping[str, Fleet]]:
        """By region."""
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


def carrier_of(
    ledger: MlflowLedger,
    spec: Delivery,
    *,
    patience: timedelta = timedelta(0),
    hands_on: bool = False,
    continues: bool = False,
) -> Carrier:
    """Name this process as who carries the delivery, alone or as one of those that do so step by step.

    Args:
        ledger: the delivery's; its owner is known to all who carry it.
        spec: says how long a trial may go on while nobody does.
        patience: how long nothing may be heard between two steps; a trial goes on at least as long.
        hands_on: whether others go on with it afterwards.
        continues: whether others carried it before as the same owner.
    """
    unattended = max(spec.fleet.unattended.total_seconds(), patience.total_seconds())
    return Carrier(
        token=ledger.owner,
        who=_process_name(),
        over=ledger.over,
        hands_on=hands_on,
        continues=continues,
        unattended_seconds=unattended,
    )


def rollback_carrier(spec: Delivery) -> Carrier:
    """Name somebody who takes regions back, no matter who carries a delivery there."""
    return Carrier(
        token=uuid4().hex, who=_process_name(), insists=True, unattended_seconds=spec.fleet.unattended.total_seconds()
    )


def _process_name() -> str:
    return f"{socket.gethostname()} (process {os.getpid()})"
