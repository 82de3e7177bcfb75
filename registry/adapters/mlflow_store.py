"""Which way to an MLflow store is taken: a server's REST API, a file's tables, or MLflow's own library."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from registry.adapters.mlflow_address import access_to, asked_by_rest
from registry.adapters.mlflow_file import FileStore, is_read_here
from registry.adapters.mlflow_library import SQLITE, LibraryStore
from registry.adapters.registering.file import FileVersions
from registry.adapters.registering.library import LibraryVersions
from registry.adapters.version_files.anywhere import FilesAnywhere, ObjectArtifacts, ObjectVersions
from registry.adapters.version_files.library import LibraryFiles
from registry.ports import ArtifactFiles, ArtifactStore, ModelStore, RunStore, VersionLog


@dataclass(frozen=True)
class Store:
    """One MLflow store."""

    uri: str
    runs: RunStore
    artifacts: ArtifactStore
    models: ModelStore
    files: ArtifactFiles
    log: VersionLog


def embedded_uri(state: Path) -> str:
    """The tracking URI of the registry inside the state folder: a SQLite file, artifacts next to it."""
    return f"{SQLITE}{state.absolute() / 'mlflow.db'}"


def open_store(tracking_uri: str) -> Store:
    """That store; nothing is asked yet.

    Raises:
        UsageError: the environment says something about it that cannot be.
    """
    if asked_by_rest(tracking_uri, os.environ):
        return _by_rest(tracking_uri)
    files, log = _anywhere(tracking_uri), LibraryVersions(tracking_uri)
    if is_read_here(tracking_uri, os.environ):
        file = FileStore(tracking_uri)
        return Store(tracking_uri, file, file, file, files, FileVersions(tracking_uri, log))
    library = LibraryStore(tracking_uri)
    return Store(tracking_uri, library, library, library, files, log)


def _by_rest(tracking_uri: str) -> Store:
    # A third of a second that no file needs.
    from registry.adapters.mlflow_http import MlflowServer
    from registry.adapters.mlflow_rest import ProxiedArtifacts, RestModels, RestRuns
    from registry.adapters.registering.server import ServerVersions
    from registry.adapters.version_files.server import ServerFiles

    server = MlflowServer(access_to(tracking_uri, os.environ, Path.home()))
    anywhere = _anywhere(tracking_uri)
    return Store(
        tracking_uri,
        RestRuns(server),
        ProxiedArtifacts(server, ObjectArtifacts(anywhere, LibraryStore(tracking_uri))),
        RestModels(server),
        ServerFiles(server, anywhere),
        ObjectVersions(anywhere, ServerVersions(server, LibraryVersions(tracking_uri))),
    )


def _anywhere(tracking_uri: str) -> FilesAnywhere:
    by_library = LibraryFiles(tracking_uri)
    return FilesAnywhere(by_library, by_library.resolved)
