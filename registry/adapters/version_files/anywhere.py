"""Which way to the files at an address is taken: a folder of this machine, or MLflow's client.

So it is of files of versions, of runs, and of versions that are being registered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from registry.adapters.version_files.folder import FolderFiles, folder_of
from registry.adapters.version_files.library import PROVIDERS
from registry.errors import RegistryError, StoreRefused
from registry.model import StoredRun
from registry.ports import ArtifactFiles

HTTP_NOT_FOUND = 404


def clients_of(address: str) -> tuple[str, ...]:
    """The packages that read what lies there, of those that not everybody has."""
    provider = PROVIDERS.get(urlsplit(address).scheme)
    return provider.packages if provider else ()


class FilesAnywhere:
    """An `ArtifactFiles`."""

    def __init__(self, elsewhere: ArtifactFiles) -> None:
        """What is in no folder is read `elsewhere`."""
        self._folders, self._elsewhere = FolderFiles(), elsewhere

    def listed(self, address: str) -> Mapping[str, int]:
        found = self._at(address).listed(address)
        for path in found:
            _refuse_leading_out(address, path)
        return dict(sorted(found.items()))

    def parts(self, address: str, path: str, near: Path | None = None) -> Iterator[bytes]:
        _refuse_leading_out(address, path)
        return self._at(address).parts(address, path, near)

    def put(self, address: str, path: str, file: Path) -> None:
        self._at(address).put(address, path, file)

    def _at(self, address: str) -> ArtifactFiles:
        return self._folders if folder_of(address) else self._elsewhere


def _refuse_leading_out(address: str, path: str) -> None:
    """Any text may be a name in a store, and files are written here by theirs."""
    if {"", ".", ".."} & set(path.split("/")) or "\\" in path:
        raise RegistryError(f"{address} has a file named {path!r}", hint="log the version again with plain file names")


class RunArtifacts:
    """An `ArtifactStore`."""

    def __init__(self, files: ArtifactFiles) -> None:
        self._files = files

    def upload(self, run: StoredRun, path: Path, folder: str) -> None:
        self._files.put(run.artifacts, f"{folder}/{path.name}".lstrip("/"), path)

    def files(self, run: StoredRun, folder: str) -> Mapping[str, int]:
        if folder:
            _refuse_leading_out(run.artifacts, folder)
        try:
            found = self._files.listed(f"{run.artifacts.rstrip('/')}/{folder}".rstrip("/"))
        except StoreRefused as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            return {}
        return {f"{folder}/{path}".lstrip("/"): size for path, size in found.items()}

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        parts = self._files.parts(run.artifacts, path, target.parent)
        with target.open("wb") as file:
            file.writelines(parts)
