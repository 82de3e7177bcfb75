"""Who carries a delivery in the clusters of its regions: a ledger's owner, or somebody who insists on going back."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from uuid import uuid4

from pipelines.spec import Delivery
from registry.adapters.mlflow_ledger import MlflowLedger
from rollouts.cluster.lease import UNATTENDED_SECONDS, Carrier
from rollouts.manifests.spec import ArgoFleetSpec


def carrier_of(
    ledger: MlflowLedger, spec: Delivery, *, patience: timedelta = timedelta(0), hands_on: bool = False
) -> Carrier:
    """Name this process as who carries the delivery, alone or as one of those that do so step by step.

    Args:
        ledger: the delivery's; its owner is known to all who carry it.
        spec: says how long a trial may go on while nobody does.
        patience: how long nothing may be heard between two steps; a trial goes on at least as long.
        hands_on: whether others go on with it afterwards.
    """
    unattended = max(_unattended_seconds(spec), patience.total_seconds())
    return Carrier(token=ledger.owner, who=_us(), over=ledger.over, hands_on=hands_on, unattended_seconds=unattended)


def insisting(spec: Delivery) -> Carrier:
    """Name somebody who takes regions back, whoever carries a delivery there."""
    return Carrier(token=uuid4().hex, who=_us(), insists=True, unattended_seconds=_unattended_seconds(spec))


def _unattended_seconds(spec: Delivery) -> float:
    fleet = spec.fleet
    return fleet.unattended.total_seconds() if isinstance(fleet, ArgoFleetSpec) else UNATTENDED_SECONDS


def _us() -> str:
    return f"{socket.gethostname()} (process {os.getpid()})"
