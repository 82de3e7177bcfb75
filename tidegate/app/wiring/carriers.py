"""Who carries a delivery in its regions: this process, as its fleets are told."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from uuid import uuid4

from pipelines.spec.delivery import Delivery
from registry.adapters.mlflow_ledger import MlflowLedger
from rollouts.cluster.carrier import Carrier


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
