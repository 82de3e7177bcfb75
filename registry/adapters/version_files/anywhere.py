"""Which way to the files at an address is taken: a folder, a provider's own client, or MLflow's library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from registry.adapters.version_files.azure import AzureContainer
from registry.adapters.version_files.folder import FolderFiles, folder_of
from registry.adapters.version_files.gcs import GoogleBucket
from registry.adapters.version_files.library import LibraryFiles
from registry.adapters.version_files.objects import ObjectFiles, Place
from registry.adapters.version_files.s3 import S3Bucket
from registry.ports import ArtifactFiles

PROVIDERS: Mapping[str, Callable[[str], Place]] = {
    "s3": S3Bucket.at,
    "gs": GoogleBucket.at,
    "wasb": AzureContainer.at,
    "wasbs": AzureContainer.at,
    "abfs": AzureContainer.at,
    "abfss": AzureContainer.at,
}
"""By the scheme of an address."""


def is_in_object_store(address: str) -> bool:
    """Whether a provider's own client has what lies there."""
    return urlsplit(address).scheme in PROVIDERS


class FilesAnywhere:
    """An `ArtifactFiles`."""

    def __init__(self, uri: str) -> None:
        """`uri` is that of the store, which knows where runs have their artifacts."""
        self._folders, self._objects, self._library = FolderFiles(), ObjectFiles(_place_of()), LibraryFiles(uri)

    def listed(self, address: str) -> Mapping[str, int]:
        files, place = self._at(address)
        return files.listed(place)

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        files, place = self._at(address)
        return files.parts(place, path)

    def put(self, address: str, path: str, file: Path) -> None:
        files, place = self._at(address)
        files.put(place, path, file)

    def _at(self, address: str) -> tuple[ArtifactFiles, str]:
        """The address that these files take: a version may be known by the run that logged it."""
        place = self._library.resolved(address) if urlsplit(address).scheme == "runs" else address
        if is_in_object_store(place):
            return self._objects, place
        return (self._folders if folder_of(address) else self._library), address


def _place_of() -> Callable[[str], Place]:
    """A client is made once for each address: it holds connections, and credentials that it renews."""

    @lru_cache(maxsize=16)
    def place(address: str) -> Place:
        return PROVIDERS[urlsplit(address).scheme](address)

    return place
