"""Files wherever MLflow's own client reads and writes them: behind a tracking server, in volumes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from registry.adapters.mlflow_library import store_errors
from registry.adapters.version_files.folder import FolderFiles
from registry.errors import RegistryError

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

MOST_FILES = 10_000
"""Of a version or a delivery, its folders included."""
PARTIAL, RANGE_BEHIND_THE_END = 206, 416
ATTEMPTS = 4
PAUSE_SECONDS = 2.0
"""Before the third attempt to get one more byte; the second comes at once, and each further pause is twice as long."""


class LibraryFiles:
    """An `ArtifactFiles`."""

    def __init__(self, uri: str) -> None:
        """`uri` is that of the store, which knows who hands out artifacts."""
        self._uri = uri
        self._open = lru_cache(maxsize=16)(self._opened)

    def listed(self, address: str) -> Mapping[str, int]:
        with store_errors(self._uri):
            found: dict[str, int] = {}
            folders, repository = [""], self._open(address)
            while folders and len(found) + len(folders) <= MOST_FILES:
                for file in repository.list_artifacts(folders.pop() or None):
                    if file.is_dir:
                        folders.append(file.path)
                    else:
                        found[file.path] = int(file.file_size or 0)
        if folders:
            raise RegistryError(
                f"{address} has more than {MOST_FILES} files and folders",
                hint="log the version again without the files that it does not need",
            )
        return found

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository

        with store_errors(self._uri):
            repository = self._open(address)
            if isinstance(repository, HttpArtifactRepository):
                yield from _streamed(repository.artifact_uri, path)
                return
            # No more than one file at a time is on the disk.
            with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
                kept = Path(repository.download_artifacts(path, folder))  # type: ignore[no-untyped-call]
                yield from FolderFiles().parts(str(kept.parent), kept.name)

    def put(self, address: str, path: str, file: Path) -> None:
        folder, _, name = path.rpartition("/")
        with store_errors(self._uri), tempfile.TemporaryDirectory(prefix="tidegate-") as made:
            # MLflow keeps a file under its own name.
            named = Path(made, name)
            named.symlink_to(file.absolute())
            self._open(address).log_artifact(str(named), folder or None)  # type: ignore[no-untyped-call]

    def _opened(self, address: str) -> ArtifactRepository:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        return get_artifact_repository(address, tracking_uri=self._uri, registry_uri=self._uri)


def _streamed(folder: str, path: str) -> Iterator[bytes]:
    """A file's bytes, by MLflow's own requests. A connection that breaks is gone on with where it broke."""
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.request_utils import augmented_raise_for_status
    from mlflow.utils.rest_utils import http_request
    from urllib3.exceptions import HTTPError

    had, tried = 0, 0
    while True:
        before = had
        headers = {"Range": f"bytes={had}-", "Accept-Encoding": "identity"} if had else None
        try:
            creds = get_default_host_creds(folder)  # type: ignore[no-untyped-call]
            answer = http_request(creds, f"/{quote(path)}", "GET", stream=True, extra_headers=headers)  # type: ignore[no-untyped-call]
            if had and answer.status_code == RANGE_BEHIND_THE_END:
                return
            augmented_raise_for_status(answer)  # type: ignore[no-untyped-call]
            # Not every server goes on where it is told to.
            skip = 0 if answer.status_code == PARTIAL else had
            for part in answer.iter_content():
                if len(part) > skip:
                    had += len(part) - skip
                    yield part[skip:]
                skip = max(0, skip - len(part))
        except (HTTPError, MlflowException):
            tried = 0 if had > before else tried + 1
            if tried >= ATTEMPTS:
                raise
            time.sleep(PAUSE_SECONDS * 2 ** (tried - 2) if tried > 1 else 0.0)
        else:
            return
