"""A store that is a SQLite file: what it says is read here, and aliases; what else is written goes through MLflow's
own library.

The library takes two seconds to load and to open the file, which most commands only read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from registry.adapters.local_artifacts import copy_file, list_files
from registry.adapters.mlflow_library import SQLITE, LibraryStore
from registry.adapters.mlflow_sqlite import NotReadHere, Tables, here_or_by_library, read
from registry.adapters.mlflow_sqlite_writes import write
from registry.conventions import alias_problem
from registry.errors import StoreUnreachable
from registry.model import StoredModel, StoredRun, StoredVersion
from tidegate.core.text import redacted

WORKSPACES = "MLFLOW_ENABLE_WORKSPACES"
# SQLAlchemy takes these signs for escapes, options and fragments.
_FILE = re.compile(rf"{SQLITE}(?!:|file:)[^%?#]+")
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def is_read_here(uri: str, environment: Mapping[str, str]) -> bool:
    """Whether it is a SQLite file, named so that nobody can take another one for it."""
    return _FILE.fullmatch(uri) is not None and environment.get(WORKSPACES, "").lower() in {"", "0", "false"}


class FileStore(LibraryStore):
    """A `RunStore`, an `ArtifactStore` and a `ModelStore`.

    What is not there is not made to be read, and what is not understood is left to the library.
    """

    def __init__(self, uri: str) -> None:
        """`uri` is one that `is_read_here`."""
        super().__init__(uri)
        self._path = Path(uri.removeprefix(SQLITE))
        self._shown = redacted(uri)

    def run(self, run: str) -> StoredRun | None:
        return self._read(Tables.run, super().run, run)

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        return self._read(Tables.search_runs, super().search_runs, experiment, tags, status=status, last=last)

    def files(self, run: StoredRun, folder: str) -> Mapping[str, int]:
        return self._here(lambda: list_files(run.artifacts, folder), lambda: super(FileStore, self).files(run, folder))

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        other = super().download
        self._here(lambda: copy_file(run.artifacts, path, target), lambda: other(run, path, target))

    def names_like(self, part: str, most: int) -> Sequence[str]:
        return self._read(Tables.names_like, super().names_like, part, most)

    def model(self, name: str) -> StoredModel | None:
        return self._read(Tables.model, super().model, name)

    def version(self, name: str, version: str) -> StoredVersion | None:
        return self._read(Tables.version, super().version, name, version)

    def versions(self, name: str) -> Sequence[StoredVersion]:
        return self._read(Tables.versions, super().versions, name)

    def set_alias(self, name: str, alias: str, version: str | None) -> None:
        def here() -> None:
            # Of other names MLflow refuses some.
            if alias_problem(alias):
                raise NotReadHere(alias)
            if version is None:
                write(self._path, lambda tables: tables.take_away(name, alias))
            else:
                write(self._path, lambda tables: tables.point(name, alias, version))

        other = super().set_alias
        self._here(here, lambda: other(name, alias, version))

    def address(self, name: str, version: str) -> str:
        found = self._read(Tables.address, super().address, name, version)
        if found is None:
            raise StoreUnreachable(
                f"MLflow store {self._shown}: there is no models:/{name}/{version}", hint="see `tidegate model list`"
            )
        return found

    def _read(
        self,
        here: Callable[Concatenate[Tables, Asked], Answer],
        by_library: Callable[Asked, Answer],
        *what: Asked.args,
        **named: Asked.kwargs,
    ) -> Answer:
        return self._here(
            lambda: read(self._path, lambda tables: here(tables, *what, **named)), lambda: by_library(*what, **named)
        )

    def _here(self, here: Callable[[], Answer], by_library: Callable[[], Answer]) -> Answer:
        return here_or_by_library(self._uri, here, by_library)
