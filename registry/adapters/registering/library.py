"""New versions in a store that MLflow's own library opens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from registry.adapters.mlflow_library import create_version, experiment_id, files_move, open_client, store_errors
from registry.model import PendingVersion

if TYPE_CHECKING:
    from mlflow import MlflowClient


class LibraryVersions:
    """A `VersionLog`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    @cached_property
    def _client(self) -> MlflowClient:
        return open_client(self._uri)

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        client = self._client
        with store_errors(self._uri):
            logged = client.create_logged_model(experiment_id(client, experiment), name=name, model_type=kind)
            return PendingVersion(id=logged.model_id, artifacts=logged.artifact_location)

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        client = self._client
        with store_errors(self._uri), files_move():
            client.log_model_artifacts(pending.id, str(folder))

    def abandon(self, pending: PendingVersion) -> None:
        with store_errors(self._uri):
            self._client.delete_logged_model(pending.id)

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        with store_errors(self._uri):
            self._client.finalize_logged_model(pending.id, "READY")
            return create_version(self._client, pending.becoming(name, tags, description))
