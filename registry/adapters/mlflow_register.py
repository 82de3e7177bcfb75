"""Logs a Hugging Face directory as a new model version, by MLflow's own library: it lays out what MLflow can load."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from registry.adapters.mlflow_flavor import lay_out
from registry.adapters.mlflow_library import as_global_store, experiment_id, open_client, store_errors
from registry.conventions import experiment_name
from registry.huggingface import ModelCard

if TYPE_CHECKING:
    from mlflow import MlflowClient


def log_version(
    tracking_uri: str,
    name: str,
    folder: Path,
    paths: Iterable[str],
    card: ModelCard,
    *,
    tags: Mapping[str, str],
    description: str | None,
) -> str:
    """Copy the files into MLflow's store, once, and make a version of them; returns its number.

    Raises:
        StoreUnreachable: the store did not do its part; what is cut off never becomes a version.
    """
    client = open_client(tracking_uri)
    with store_errors(tracking_uri), tempfile.TemporaryDirectory(prefix="tidegate-") as staging:
        experiment = experiment_id(client, experiment_name(name))
        logged = client.create_logged_model(experiment, name=name, model_type=card.architecture)
        lay_out(Path(staging), folder, paths, card, logged)
        client.log_model_artifacts(logged.model_id, staging)
        # What is cut off before this stays PENDING in MLflow and never becomes a version.
        client.finalize_logged_model(logged.model_id, "READY")
        _make_model(client, name)
        with as_global_store(tracking_uri):
            version = client.create_model_version(
                name, f"models:/{logged.model_id}", tags=dict(tags), description=description, model_id=logged.model_id
            )
    return str(version.version)


def _make_model(client: MlflowClient, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        # Every version but the first finds its model there.
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
