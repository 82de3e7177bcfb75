"""Files of model versions in whatever store MLflow's library opens: buckets, volumes, servers with plugins."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry.adapters.mlflow_library import files_move, store_errors
from registry.adapters.version_files.folder import PART_BYTES, FolderFiles, folder_of

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository


class LibraryFiles:
    """An `ArtifactFiles`."""

    def __init__(self, uri: str) -> None:
        """`uri` is that of the store, which knows where runs have their artifacts."""
        self._uri = uri
        self._open = lru_cache(maxsize=16)(self._opened)

    def listed(self, address: str) -> Mapping[str, int]:
        if folder_of(address):
            return FolderFiles().listed(address)
        with store_errors(self._uri), files_move():
            return dict(sorted(_below(self._open(address), None)))

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        if folder_of(address):
            yield from FolderFiles().parts(address, path)
            return
        with store_errors(self._uri), files_move():
            yield from _streamed(self._open(address), path)

    def _opened(self, address: str) -> ArtifactRepository:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        return get_artifact_repository(address, tracking_uri=self._uri, registry_uri=self._uri)


def _below(repository: ArtifactRepository, folder: str | None) -> Iterator[tuple[str, int]]:
    for file in repository.list_artifacts(folder):
        if file.is_dir:
            yield from _below(repository, file.path)
        else:
            yield file.path, int(file.file_size or 0)


def _streamed(repository: ArtifactRepository, path: str) -> Iterator[bytes]:
    """The bytes of a file; only stores that cannot stream put it on a disk, one at a time."""
    from mlflow.store.artifact.runs_artifact_repo import RunsArtifactRepository
    from mlflow.store.artifact.s3_artifact_repo import S3ArtifactRepository

    if isinstance(repository, RunsArtifactRepository):
        repository = repository.repo
    if isinstance(repository, S3ArtifactRepository):
        yield from _from_bucket(repository, path)
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        kept = Path(repository.download_artifacts(path, folder))  # type: ignore[no-untyped-call]
        yield from FolderFiles().parts(str(kept.parent), kept.name)


def _from_bucket(repository: Any, path: str) -> Iterator[bytes]:
    bucket, root = repository.parse_s3_compliant_uri(repository.artifact_uri)
    # MLflow's own client, with all that its variables say of endpoint, certificates and addressing.
    client = repository._get_s3_client()
    found = client.get_object(Bucket=bucket, Key=f"{root}/{path}" if root else path)
    yield from found["Body"].iter_chunks(PART_BYTES)
