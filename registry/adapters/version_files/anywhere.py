"""Which way to the files at an address is taken: a folder, a provider's own client, or MLflow's library.

So it is of files of versions, of runs, and of versions that are being registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from registry.adapters.version_files.azure import AzureContainer
from registry.adapters.version_files.folder import FolderFiles, folder_of
from registry.adapters.version_files.gcs import GoogleBucket
from registry.adapters.version_files.objects import ObjectFiles, Place
from registry.adapters.version_files.s3 import S3Bucket
from registry.model import PendingVersion, StoredRun
from registry.ports import ArtifactFiles, ArtifactStore, VersionLog

PROVIDERS: Mapping[str, Callable[[str], Place]] = {
    "s3": S3Bucket.at,
    "gs": GoogleBucket.at,
    "wasb": AzureContainer.at,
    "wasbs": AzureContainer.at,
    "abfs": AzureContainer.at,
    "abfss": AzureContainer.at,
}
"""By the scheme of an address."""
CLIENTS: Mapping[Callable[[str], Place], tuple[str, ...]] = {
    S3Bucket.at: ("boto3",),
    GoogleBucket.at: ("google.cloud.storage",),
    AzureContainer.at: ("azure.storage.blob", "azure.identity"),
}
"""The packages by which each provider is asked; extras of tidegate bring them."""


def clients_of(address: str) -> tuple[str, ...]:
    """The packages that read what lies there, of those that not everybody has."""
    provider = PROVIDERS.get(urlsplit(address).scheme)
    return CLIENTS[provider] if provider else ()


def is_in_object_store(address: str) -> bool:
    """Whether a provider's own client has what lies there."""
    return urlsplit(address).scheme in PROVIDERS


class FilesAnywhere:
    """An `ArtifactFiles`."""

    def __init__(self, elsewhere: ArtifactFiles, resolved: Callable[[str], str]) -> None:
        """Others are read `elsewhere`; an address that names the run that logged the files is `resolved` first."""
        self._folders, self._objects = FolderFiles(), ObjectFiles(_place_of())
        self._elsewhere, self._resolved = elsewhere, resolved

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
        place = self._resolved(address) if urlsplit(address).scheme == "runs" else address
        if is_in_object_store(place):
            return self._objects, place
        return (self._folders if folder_of(address) else self._elsewhere), address


def _place_of() -> Callable[[str], Place]:
    """A client is made once for each address: it holds connections, and credentials that it renews."""

    @lru_cache(maxsize=16)
    def place(address: str) -> Place:
        return PROVIDERS[urlsplit(address).scheme](address)

    return place


class ObjectArtifacts:
    """An `ArtifactStore`. What lies elsewhere is left to another one."""

    def __init__(self, objects: ArtifactFiles, elsewhere: ArtifactStore) -> None:
        self._objects, self._elsewhere = objects, elsewhere

    def upload(self, run: StoredRun, path: Path, folder: str) -> None:
        if is_in_object_store(run.artifacts):
            self._objects.put(run.artifacts, f"{folder}/{path.name}".lstrip("/"), path)
        else:
            self._elsewhere.upload(run, path, folder)

    def files(self, run: StoredRun, folder: str) -> Mapping[str, int]:
        if not is_in_object_store(run.artifacts):
            return self._elsewhere.files(run, folder)
        below = "/".join(filter(None, (run.artifacts.rstrip("/"), folder)))
        return {"/".join(filter(None, (folder, path))): size for path, size in self._objects.listed(below).items()}

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        if not is_in_object_store(run.artifacts):
            self._elsewhere.download(run, path, target)
            return
        with target.open("wb") as file:
            for part in self._objects.parts(run.artifacts, path):
                file.write(part)


class ObjectVersions:
    """A `VersionLog`, of which only the files are ours. What lies elsewhere is left to another one."""

    def __init__(self, objects: ArtifactFiles, elsewhere: VersionLog) -> None:
        self._objects, self._elsewhere = objects, elsewhere

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        return self._elsewhere.begin(experiment, name, kind)

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        if not is_in_object_store(pending.artifacts):
            self._elsewhere.upload(pending, folder)
            return
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self._objects.put(pending.artifacts, file.relative_to(folder).as_posix(), file)

    def abandon(self, pending: PendingVersion) -> None:
        self._elsewhere.abandon(pending)

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        return self._elsewhere.finish(pending, name, tags, description)
