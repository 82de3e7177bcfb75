"""Opens MLflow: the registry of model versions, and the ledgers of deliveries with their keys.

What opens them is imported when they are opened: most commands start without it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.state import StateFolder
from tidegate.core.errors import UsageError
from tidegate.core.process import note
from tidegate.core.text import parsed, redacted

if TYPE_CHECKING:
    from pipelines.spec.trust import Trusted
    from registry.deliveries import MlflowDeliveries
    from registry.versions import MlflowRegistry


LEDGER_KEY = "TIDEGATE_LEDGER_KEY"
"""The path of the private key that signs what this process writes into ledgers."""


def open_deliveries(
    state: Path, tracking_uri: str | None, trusted: Trusted | None = None, *, leftovers: bool = True
) -> MlflowDeliveries:
    """The ledgers of all deliveries, signed and believed as the environment says.

    What a process before this one could not write is written first.

    `trusted` says whose ledgers are believed; None for whom the environment names.
    """
    from pipelines.adapters.ledger_keys import believed_by, seal_from
    from pipelines.adapters.trust import named_trust
    from pipelines.events.writer import write_leftovers
    from registry.deliveries import MlflowDeliveries

    seal = seal_from(os.environ.get(LEDGER_KEY))
    believed = believed_by(trusted or named_trust())
    deliveries = MlflowDeliveries(mlflow_address(state, tracking_uri), seal=seal, believed=believed)
    if leftovers and (unwritten := StateFolder(state).unwritten).exists():
        write_leftovers(unwritten, deliveries, open_registry(state, tracking_uri), note)
    return deliveries


def open_registry(state: Path, tracking_uri: str | None) -> MlflowRegistry:
    """The registry that commands share."""
    from registry.versions import MlflowRegistry

    return MlflowRegistry(mlflow_address(state, tracking_uri))


def mlflow_address(state: Path, tracking_uri: str | None) -> str:
    """Where MLflow is: as named, else the embedded store in `state`.

    Raises:
        UsageError: the address cannot be parsed, or versions would be in another store than runs.
    """
    from registry.ports import embedded_uri

    address = tracking_uri or embedded_uri(state)
    # MLflow would take HOST:PORT for a store of an unknown kind.
    if re.fullmatch(r"[\w.-]+:\d{1,5}(/.*)?", address):
        raise UsageError(f"MLflow store {address}: found no http:// or https://", hint=f"say http://{address}")
    if "://" in address and parsed(address) is None:
        raise UsageError(
            f"MLflow store {redacted(address)}: the address cannot be parsed",
            hint="write / ? # @ and spaces in a name or password as %2F %3F %23 %40 %20",
        )
    if os.environ.get("MLFLOW_REGISTRY_URI", address) != address:
        raise UsageError(
            f"MLFLOW_REGISTRY_URI: found another store than {redacted(address)}; tidegate keeps versions next to runs",
            hint="unset it, or name that store with MLFLOW_TRACKING_URI",
        )
    return address
