"""What the room needs of an MLflow store, by whatever way it is asked.

Every call raises `StoreUnreachable` when the store did not do its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from registry.model import (
    NewVersion,
    PendingVersion,
    StoredMetric,
    StoredModel,
    StoredRun,
    StoredVersion,
)


class RunStore(Protocol):
    """Runs, each a delivery's."""

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        """A new run in the experiment of that name, which is made when there is none; `started` in milliseconds."""
        ...

    def run(self, run: str) -> StoredRun | None:
        """As it is now; None when no run has that id."""
        ...

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        """Those with all these tags, and of that status, newest first; none when there is no such experiment."""
        ...

    def log(self, run: str, *, tags: Mapping[str, str] | None = None, metrics: Sequence[StoredMetric] = ()) -> None:
        """Write all of it in one request, which is carried out whole or not at all."""
        ...

    def end_run(self, run: str, status: str, *, ended: int) -> None:
        """`ended` in milliseconds."""
        ...

    def delete_run(self, run: str) -> None:
        """Lists show it no longer."""
        ...


class ArtifactStore(Protocol):
    """Files besides runs."""

    def upload(self, run: StoredRun, path: Path, folder: str) -> None:
        """Keep a file in a folder of the run's artifacts; "" is the top."""
        ...

    def files(self, run: StoredRun, folder: str) -> Mapping[str, int]:
        """The size in bytes of every file below a folder, by its path, sorted; none when there is no such folder."""
        ...

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        """Write one file to `target`, whose folder is there."""
        ...


class ArtifactFiles(Protocol):
    """The files of model versions, at the address that the store gave for one."""

    def listed(self, address: str) -> Mapping[str, int]:
        """The size in bytes of every file below it, by its relative path."""
        ...

    def parts(self, address: str, path: str, near: Path | None = None) -> Iterator[bytes]:
        """The bytes of one of these files, in order. A file that no stream brings is kept in the folder `near` until
        then, by default in that of temporary files.
        """
        ...

    def put(self, address: str, path: str, file: Path) -> None:
        """Keep a file there, in the place of one that has this path."""
        ...


class ModelStore(Protocol):
    """Registered models and their versions."""

    def names_like(self, part: str, most: int) -> Sequence[str]:
        """Of models that have `part` in their names, sorted; no more than so many, of one page."""
        ...

    def model(self, name: str) -> StoredModel | None:
        """With its aliases; None when there is none."""
        ...

    def version(self, name: str, version: str) -> StoredVersion | None:
        """One version; None when there is none."""
        ...

    def versions(self, name: str) -> Sequence[StoredVersion]:
        """Every version of a model, oldest first."""
        ...

    def address(self, name: str, version: str) -> str:
        """Where the version's files are."""
        ...

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        """Point an alias at a version, wherever it pointed before; None takes it away."""
        ...

    def tag_version(self, name: str, version: str, tags: Mapping[str, str | None]) -> None:
        """Write tags on a version, in this order; None takes one away."""
        ...

    def add_version(self, new: NewVersion) -> str:
        """Make it the next version of the registered model, which is made when there is none; returns its number."""
        ...


class VersionLog(Protocol):
    """Where a folder becomes a version, in three steps; what is cut off before the last never becomes one."""

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        """A logged model in the experiment of that name, which is made when there is none; `kind` is shown with it."""
        ...

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        """Keep all files below `folder` as its artifacts; links are followed."""
        ...

    def abandon(self, pending: PendingVersion) -> None:
        """Delete what was not uploaded to its end; `mlflow gc` then takes its files."""
        ...

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        """Make it the next version of the registered model, which is made when there is none; returns its number."""
        ...
