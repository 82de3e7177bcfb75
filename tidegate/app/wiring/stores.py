"""Opens MLflow: the registry of model versions, and the ledgers of deliveries with their keys.

What opens them is imported when they are opened: most commands start without it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.state import StateFolder
from registry.model import MlflowAddresses
from tidegate.app.process import note

if TYPE_CHECKING:
    from pipelines.adapters.mlflow_triggers import MlflowTriggers
    from registry.adapters.mlflow_deliveries import MlflowDeliveries
    from registry.adapters.mlflow_models import MlflowRegistry
    from registry.adapters.version_files.hugging_face import HuggingFaceHub


LEDGER_KEY = "TIDEGATE_LEDGER_KEY"
"""The path of the private key that signs what this process writes into ledgers."""

REGISTRY_URI = "MLFLOW_REGISTRY_URI"
"""MLflow's own variable: the address of the store with the model versions, where it is not that of the runs."""


def open_deliveries(
    state: Path, tracking_uri: str | None, spec_folder: Path | None = None, *, leftovers: bool = True
) -> MlflowDeliveries:
    """The ledgers of all deliveries, signed and believed as the environment says.

    What a process before this one could not write is written first.

    Args:
        state: the folder with what is this machine's own.
        tracking_uri: of MLflow.
        spec_folder: where a person's own spec lies, with a trust file next to it if there is one; never where one
            lies that came from MLflow: without it the one in the working folder is read, if there is one.
        leftovers: whether to write what a process before this one could not.
    """
    from pipelines.adapters.ledger_keys import believed_by, seal_from
    from pipelines.events.spool import write_leftovers
    from registry.adapters.mlflow_deliveries import MlflowDeliveries
    from tidegate.app.wiring.trust import trust_next_to

    seal = seal_from(os.environ.get(LEDGER_KEY))
    believed = believed_by(trust_next_to(spec_folder or Path()))
    deliveries = MlflowDeliveries(mlflow_addresses(state, tracking_uri).tracking, seal=seal, believed=believed)
    if leftovers and (unwritten := StateFolder(state).unwritten).exists():
        write_leftovers(unwritten, deliveries, open_registry(state, tracking_uri), note)
    return deliveries


def open_registry(state: Path, tracking_uri: str | None) -> MlflowRegistry:
    """The registry that commands share."""
    from registry.adapters.mlflow_models import MlflowRegistry

    at = mlflow_addresses(state, tracking_uri)
    return MlflowRegistry(at.tracking, at.registry)


def open_hub() -> HuggingFaceHub:
    """Hugging Face's hub, or the mirror that HF_ENDPOINT names.

    Raises:
        NotInstalled: without the extra `hub`.
    """
    from registry.adapters.version_files.hugging_face import HuggingFaceHub
    from tidegate.core.adapters.extras import require

    require("huggingface_hub")
    return HuggingFaceHub()


def open_triggers(state: Path, tracking_uri: str | None) -> MlflowTriggers:
    """The registry, asked which versions are to be delivered, and told whom to call."""
    from pipelines.adapters.mlflow_triggers import MlflowTriggers

    return MlflowTriggers(mlflow_addresses(state, tracking_uri).registry)


def mlflow_addresses(state: Path, tracking_uri: str | None) -> MlflowAddresses:
    """Where MLflow is: as named, else the embedded store in `state`; versions may be in another, as for MLflow."""
    from registry.adapters.mlflow_store import embedded_uri

    tracking = tracking_uri or embedded_uri(state)
    return MlflowAddresses(tracking=tracking, registry=os.environ.get(REGISTRY_URI) or tracking)
