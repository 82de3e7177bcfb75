"""Model versions in Databricks' Unity Catalog, by MLflow's own client of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from registry.adapters.databricks.address import use_profile
from registry.adapters.mlflow_library import (
    LibraryStore,
    create_version,
    files_move,
    open_client,
    store_errors,
)
from registry.catalog_tags import catalog_tags, read_catalog_tags
from registry.model import NewVersion, PendingVersion, StoredModel, StoredVersion
from registry.ports import ArtifactFiles
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from mlflow import MlflowClient

VERSIONS = "models"
"""The scheme of addresses of versions in a registry."""
TOGETHER = 8
"""Versions that are asked for at once: a list of them does not say their tags."""


class CatalogModels(LibraryStore):
    """A `ModelStore`. Names have three levels, and tags are written as `registry.catalog_tags` has them."""

    def __init__(self, uri: str, tracking_uri: str) -> None:
        """`tracking_uri` is that of the runs whose artifacts become versions."""
        super().__init__(uri)
        self._tracking_uri = tracking_uri

    @cached_property
    def _client(self) -> MlflowClient:
        use_profile(self._uri)
        return open_client(self._tracking_uri, self._uri)

    def names_like(self, part: str, most: int) -> Sequence[str]:
        # No filter and no order are taken.
        with store_errors(self._uri):
            found = (model.name for model in self._client.search_registered_models(max_results=100))
            return sorted(name for name in found if part in name)[:most]

    def model(self, name: str) -> StoredModel | None:
        require_three_levels(name)
        return super().model(name)

    def version(self, name: str, version: str) -> StoredVersion | None:
        found = super().version(name, version)
        return None if found is None else found.model_copy(update={"tags": read_catalog_tags(found.tags)})

    def versions(self, name: str) -> Sequence[StoredVersion]:
        numbers = sorted((str(found.version) for found in self._listed(name)), key=int)
        with ThreadPoolExecutor(TOGETHER) as pool:
            found = list(pool.map(lambda number: self.version(name, number), numbers))
        return [version for version in found if version is not None]

    def tag_version(self, name: str, version: str, tags: Mapping[str, str | None]) -> None:
        found = super().version(name, version)
        before = dict(found.tags) if found else {}
        known = {key: value for key, value in read_catalog_tags(before).items() if key not in tags}
        after = catalog_tags(known | {key: value for key, value in tags.items() if value is not None})
        gone = dict.fromkeys(key for key in before if key not in after)
        changed = {key: value for key, value in after.items() if before.get(key) != value}
        # Parts of an older value would make a new one unreadable, so they go first.
        super().tag_version(name, version, {**gone, **changed})

    def add_version(self, new: NewVersion) -> str:
        require_three_levels(new.name)
        with store_errors(self._uri), files_move():
            return create_version(self._client, new.model_copy(update={"tags": catalog_tags(new.tags)}))

    def address(self, name: str, version: str) -> str:
        # Where they lie only the catalog's own credentials reach; MLflow's client asks for these each time.
        return f"{VERSIONS}:/{name}/{version}"


class CatalogVersions:
    """A `VersionLog`: files go straight into the catalog, and nowhere else."""

    def __init__(self, models: CatalogModels) -> None:
        self._models = models
        self._folders: dict[str, Path] = {}

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:  # noqa: ARG002 -- of the port
        number = uuid4().hex
        return PendingVersion(id=number, artifacts=number)

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        # The catalog makes the version first, takes its files, and then says that it is ready.
        self._folders[pending.id] = folder

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        folder = self._folders.pop(pending.id)
        return self._models.add_version(NewVersion(name=name, source=str(folder), tags=tags, description=description))


def require_three_levels(name: str) -> None:
    """Refuse names that Unity Catalog cannot have.

    Raises:
        UsageError: it is one of these.
    """
    if name.count(".") != 2 or not all(name.split(".")):
        raise UsageError(f"`{name}` is no name of a model in Unity Catalog", hint="write CATALOG.SCHEMA.MODEL")


class FilesInCatalog:
    """An `ArtifactFiles`: those of versions by the catalog's own credentials, others `elsewhere`."""

    def __init__(self, catalog: ArtifactFiles, elsewhere: ArtifactFiles) -> None:
        self._catalog, self._elsewhere = catalog, elsewhere

    def listed(self, address: str) -> Mapping[str, int]:
        return self._of(address).listed(address)

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        return self._of(address).parts(address, path)

    def put(self, address: str, path: str, file: Path) -> None:
        self._of(address).put(address, path, file)

    def _of(self, address: str) -> ArtifactFiles:
        return self._catalog if urlsplit(address).scheme == VERSIONS else self._elsewhere
