"""An MLflow store: its runs, versions and files, by MLflow's own client."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from registry.adapters.mlflow_address import call_seconds
from registry.adapters.mlflow_calls import bounded
from registry.adapters.mlflow_library import SQLITE, LibraryStore
from registry.adapters.registering.elsewhere import VersionsElsewhere
from registry.adapters.registering.library import LibraryVersions
from registry.adapters.version_files.anywhere import FilesAnywhere, RunArtifacts
from registry.adapters.version_files.library import LibraryFiles
from registry.errors import UnfitModel
from registry.model import MlflowAddresses
from registry.ports import ArtifactFiles, ArtifactStore, ModelStore, RunStore, VersionLog
from tidegate.core.text import redacted


@dataclass(frozen=True)
class Store:
    """MLflow, as one process sees it."""

    at: MlflowAddresses
    runs: RunStore
    artifacts: ArtifactStore
    models: ModelStore
    files: ArtifactFiles
    log: VersionLog

    def place(self, name: str, version: str) -> str:
        """The address of a version's files; it may be known by the run that logged them.

        Raises:
            UnfitModel: that run is gone.
        """
        address = self.models.address(name, version)
        parts = urlsplit(address)
        if parts.scheme != "runs":
            return address
        number, _, path = (parts.netloc + parts.path).strip("/").partition("/")
        run = self.runs.run(number)
        if run is None:
            raise UnfitModel(
                f"models:/{name}/{version}: run {number} logged its files, and is not in {redacted(self.at.tracking)}",
                hint="check the tracking URI: MLFLOW_TRACKING_URI",
            )
        return f"{run.artifacts.rstrip('/')}/{path}".rstrip("/")


def embedded_uri(state: Path) -> str:
    """The tracking URI of the registry inside the state folder: a SQLite file, artifacts next to it."""
    return f"{SQLITE}{state.absolute() / 'mlflow.db'}"


def open_store(tracking_uri: str, registry_uri: str | None = None) -> Store:
    """That store; nothing is asked yet.

    Args:
        tracking_uri: of runs and artifacts.
        registry_uri: of model versions, where another store keeps them.

    Raises:
        UsageError: the environment says something about it that cannot be.
    """
    return bounded_store(_chosen(tracking_uri, registry_uri or tracking_uri))


def bounded_store(store: Store) -> Store:
    """The same, with calls that end in time and raise nothing but the errors that a command ends with."""
    seconds = call_seconds(os.environ)

    # A file answers at once, or is being made.
    def limit(uri: str) -> float | None:
        return None if uri.startswith(SQLITE) else seconds

    at = store.at
    return Store(
        at,
        bounded(store.runs, at.tracking, seconds=limit(at.tracking)),
        bounded(store.artifacts, at.tracking, seconds=seconds),
        bounded(store.models, at.registry, seconds=limit(at.registry)),
        bounded(store.files, at.tracking, seconds=seconds),
        bounded(store.log, at.registry, seconds=limit(at.registry)),
    )


def _chosen(tracking_uri: str, registry_uri: str) -> Store:
    tracking = _opened(tracking_uri)
    if registry_uri == tracking_uri:
        return tracking
    at = MlflowAddresses(tracking=tracking_uri, registry=registry_uri)
    registry = _opened(registry_uri)
    log = VersionsElsewhere(tracking.runs, tracking.files, registry.models)
    return replace(tracking, at=at, models=registry.models, log=log)


def _opened(uri: str) -> Store:
    files, library = FilesAnywhere(LibraryFiles(uri)), LibraryStore(uri)
    at = MlflowAddresses(tracking=uri, registry=uri)
    return Store(at, library, RunArtifacts(files), library, files, LibraryVersions(uri, files))
