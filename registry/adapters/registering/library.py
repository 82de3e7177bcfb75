"""New versions in the store that has their files too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from registry.adapters.mlflow_library import create_version, experiment_id, open_client, store_errors
from registry.model import PendingVersion
from registry.ports import ArtifactFiles

if TYPE_CHECKING:
    from mlflow import MlflowClient


class LibraryVersions:
    """A `VersionLog`."""

    def __init__(self, uri: str, files: ArtifactFiles) -> None:
        self._uri, self._files = uri, files

    @cached_property
    def _client(self) -> MlflowClient:
        return open_client(self._uri)

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        with store_errors(self._uri):
            logged = self._client.create_logged_model(
                experiment_id(self._client, experiment), name=name, model_type=kind
            )
            return PendingVersion(id=logged.model_id, artifacts=logged.artifact_location)

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        upload_all(self._files, pending, folder)

    def abandon(self, pending: PendingVersion) -> None:
        with store_errors(self._uri):
            self._client.delete_logged_model(pending.id)

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        with store_errors(self._uri):
            self._client.finalize_logged_model(pending.id, "READY")
            return create_version(self._client, pending.becoming(name, tags, description))


def upload_all(files: ArtifactFiles, pending: PendingVersion, folder: Path) -> None:
    """Keep every file below `folder`; links are followed."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        files.put(pending.artifacts, file.relative_to(folder).as_posix(), file)
