"""Files of model versions in whatever other store MLflow's library opens: volumes, servers with plugins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from registry.adapters.mlflow_library import files_move, store_errors
from registry.adapters.version_files.folder import FolderFiles

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository


class LibraryFiles:
    """An `ArtifactFiles`."""

    def __init__(self, uri: str) -> None:
        """`uri` is that of the store, which knows where runs have their artifacts."""
        self._uri = uri
        self._open = lru_cache(maxsize=16)(self._opened)
        self._resolve = lru_cache(maxsize=16)(self._resolved)

    def listed(self, address: str) -> Mapping[str, int]:
        with store_errors(self._uri), files_move():
            return dict(sorted(_below(self._open(address), None)))

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        with store_errors(self._uri), files_move(), tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            # No more than one file at a time is on the disk.
            kept = Path(self._open(address).download_artifacts(path, folder))  # type: ignore[no-untyped-call]
            yield from FolderFiles().parts(str(kept.parent), kept.name)

    def put(self, address: str, path: str, file: Path) -> None:
        with (
            store_errors(self._uri),
            files_move(),
            tempfile.TemporaryDirectory(prefix="tidegate-") as folder,
        ):
            # MLflow keeps a file under its own name.
            named = Path(folder, path.rpartition("/")[2])
            named.symlink_to(file.absolute())
            below = path.rpartition("/")[0] or None
            self._open(address).log_artifact(str(named), below)  # type: ignore[no-untyped-call]

    def resolved(self, address: str) -> str:
        """The address of files, of one that names the run that logged them."""
        return self._resolve(address)

    def _opened(self, address: str) -> ArtifactRepository:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        return get_artifact_repository(address, tracking_uri=self._uri, registry_uri=self._uri)

    def _resolved(self, address: str) -> str:
        with store_errors(self._uri):
            from mlflow.store.artifact.runs_artifact_repo import RunsArtifactRepository

            return str(RunsArtifactRepository.get_underlying_uri(address, self._uri))


def _below(repository: ArtifactRepository, folder: str | None) -> Iterator[tuple[str, int]]:
    for file in repository.list_artifacts(folder):
        if file.is_dir:
            yield from _below(repository, file.path)
        else:
            yield file.path, int(file.file_size or 0)
