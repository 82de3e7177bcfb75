"""New versions in a SQLite file of this machine, without MLflow's library, which takes two seconds to open it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from registry.adapters.mlflow_library import SQLITE, artifact_location
from registry.adapters.mlflow_sqlite import NotReadHere, here_or_by_library
from registry.adapters.mlflow_sqlite_writes import write
from registry.adapters.version_files.folder import folder_of
from registry.model import PendingVersion
from registry.ports import VersionLog

# What MLflow takes for sure. What else it takes or refuses, its library says.
_LOGGED = re.compile(r"[A-Za-z0-9_-]{1,200}")
_REGISTERED = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
MOST_KEY_CHARACTERS = 250
"""Of a tag."""


class FileVersions:
    """A `VersionLog`. What is not there yet, or out of the ordinary, is left to another one."""

    def __init__(self, uri: str, elsewhere: VersionLog) -> None:
        """`uri` is one that `is_read_here`."""
        self._uri, self._elsewhere = uri, elsewhere
        self._path = Path(uri.removeprefix(SQLITE))

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        def here() -> PendingVersion:
            if not _LOGGED.fullmatch(name):
                raise NotReadHere(name)
            place = artifact_location(self._uri)
            return write(
                self._path, lambda tables: tables.log_model(experiment, name, kind, artifacts=place, at=_now())
            )

        return here_or_by_library(self._uri, here, lambda: self._elsewhere.begin(experiment, name, kind))

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        def here() -> None:
            target = folder_of(pending.artifacts)
            if target is None:
                raise NotReadHere(pending.artifacts)
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                kept = target / file.relative_to(folder)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, kept)

        here_or_by_library(self._uri, here, lambda: self._elsewhere.upload(pending, folder))

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        def here() -> str:
            if not _REGISTERED.fullmatch(name) or any(len(key) > MOST_KEY_CHARACTERS for key in tags):
                raise NotReadHere(name)
            return write(self._path, lambda tables: tables.make_version(pending, name, tags, description, _now()))

        return here_or_by_library(self._uri, here, lambda: self._elsewhere.finish(pending, name, tags, description))


def _now() -> int:
    return int(time.time() * 1000)
