"""Reads MLflow's tables in a SQLite file with the standard library: MLflow's own takes two seconds to open them.

Each question opens the file again, to read only: it sees what any process has written by then, and makes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from registry.errors import StoreUnreachable
from registry.model import StoredModel, StoredRun, StoredVersion
from tidegate.core.text import redacted

REVISIONS = frozenset({"dc11669786a5"})
"""Schemas that are read here, by Alembic's names of them: that of MLflow 3.17."""
PATIENCE_SECONDS = 20.0
"""For one who writes at that moment; MLflow's own is as long."""
WORKSPACE = "default"
"""Where MLflow keeps everything unless told otherwise."""
_TO_THE_LIBRARY = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_ERROR})
"""A writer died and left a journal to be played back; and a table or column that is not there."""
PROMPT = "mlflow.prompt.is_prompt"
_PROMPTS = "SELECT name FROM {tags} WHERE workspace = ? AND key = 'mlflow.prompt.is_prompt'"
# By name MLflow refuses what has the tag at all; its lists leave out where it is true.
_TAGGED_PROMPTS = _PROMPTS.format(tags="registered_model_tags")
_OF_MODEL = "workspace = ? AND name = ? AND current_stage <> 'Deleted_Internal'"
Answer = TypeVar("Answer")


class NotReadHere(Exception):
    """Only MLflow's library can say it."""


def read(path: Path, question: Callable[[Tables], Answer]) -> Answer:
    """The answer at one moment; a file that is not there, or that nobody has written yet, is a store without entries.

    Raises:
        NotReadHere: the schema is another one, or the file must be repaired first.
        OSError, sqlite3.Error: it cannot be read.
    """
    if not _is_written(path):
        return question(Tables(None))
    address = f"{path.absolute().as_uri()}?mode=ro"
    with (
        leave_to_library(),
        closing(sqlite3.connect(address, uri=True, timeout=PATIENCE_SECONDS, isolation_level=None)) as opened,
    ):
        # All that is read belongs to one moment.
        opened.execute("BEGIN")
        tables = Tables(opened)
        tables.check()
        return question(tables)


@contextmanager
def leave_to_library() -> Iterator[None]:
    """Raise `NotReadHere` instead of what MLflow's library may have a way around."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _TO_THE_LIBRARY:
            raise NotReadHere(str(error)) from error
        raise


def here_or_by_library(uri: str, here: Callable[[], Answer], by_library: Callable[[], Answer]) -> Answer:
    """What is said or done here; by MLflow's library where only that can.

    Raises:
        StoreUnreachable: the file of that address, or one next to it, cannot be read or written.
    """
    try:
        return here()
    except NotReadHere:
        return by_library()
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreUnreachable(
            f"MLflow store {redacted(uri)}: {reason}", hint="check the tracking URI", detail=str(error)
        ) from error


def _is_written(path: Path) -> bool:
    try:
        # Of a file that may not be read SQLite does not say why.
        with path.open("rb") as file:
            return file.read(1) != b""
    except FileNotFoundError:
        return False


class Tables:
    """What is in them; the methods answer as those of the stores in `registry.ports` do."""

    def __init__(self, opened: sqlite3.Connection | None) -> None:
        self._opened = opened

    def check(self) -> None:
        """Refuse to read what is not known to mean the same.

        Raises:
            NotReadHere: it is not.
        """
        found = {number for (number,) in self._rows("SELECT version_num FROM alembic_version")}
        used = (f"SELECT workspace FROM {table}" for table in ("experiments", "registered_models", "webhooks"))
        others = self._rows(f"SELECT 1 FROM ({' UNION ALL '.join(used)}) WHERE workspace <> ? LIMIT 1", WORKSPACE)
        if len(found) != 1 or not found <= REVISIONS or others:
            raise NotReadHere("it has another schema, or workspaces")

    def run(self, run: str) -> StoredRun | None:
        return next(iter(self._runs("WHERE run_uuid = ?", run)), None)

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        tagged = "run_uuid IN (SELECT run_uuid FROM tags WHERE key = ? AND value = ?)"
        wanted = [
            "lifecycle_stage = 'active'",
            "experiment_id IN (SELECT experiment_id FROM experiments WHERE name = ? AND workspace = ?)",
            *[tagged] * len(tags),
            *(["status = ?"] if status is not None else []),
        ]
        values = [experiment, WORKSPACE, *(part for tag in tags.items() for part in tag)]
        values += [status] if status is not None else []
        most = -1 if last is None else last
        return self._runs(f"WHERE {' AND '.join(wanted)} ORDER BY start_time DESC, run_uuid LIMIT ?", *values, most)

    def names_like(self, part: str, most: int) -> Sequence[str]:
        prompts = f"{_TAGGED_PROMPTS} AND value = 'true'"
        # As MLflow asks: a % or _ in the part stands for anything there too.
        which = f"workspace = ? AND name LIKE ? AND name NOT IN ({prompts}) ORDER BY name LIMIT ?"
        asked = f"SELECT name FROM registered_models WHERE {which}"
        return [name for (name,) in self._rows(asked, WORKSPACE, f"%{part}%", WORKSPACE, most)]

    def model(self, name: str) -> StoredModel | None:
        known = f"SELECT 1 FROM registered_models WHERE workspace = ? AND name = ? AND name NOT IN ({_TAGGED_PROMPTS})"
        if not self._rows(known, WORKSPACE, name, WORKSPACE):
            return None
        asked = "SELECT alias, version FROM registered_model_aliases WHERE workspace = ? AND name = ?"
        return StoredModel(name=name, aliases={alias: str(of) for alias, of in self._rows(asked, WORKSPACE, name)})

    def version(self, name: str, version: str) -> StoredVersion | None:
        found = next(iter(self._versions(name, "AND version = ?", _number(version))), None)
        return None if found and PROMPT in found.tags else found

    def versions(self, name: str) -> Sequence[StoredVersion]:
        prompts = f"{_PROMPTS.format(tags='model_version_tags')} AND value = 'true'"
        return self._versions(name, f"AND name NOT IN ({prompts}) ORDER BY version", WORKSPACE)

    def address(self, name: str, version: str) -> str | None:
        """None when there is no such version, or when it is of a prompt."""
        which = f"{_OF_MODEL} AND version = ? AND name NOT IN ({_TAGGED_PROMPTS})"
        asked = f"SELECT coalesce(nullif(storage_location, ''), source) FROM model_versions WHERE {which}"
        found = self._rows(asked, WORKSPACE, name, _number(version), WORKSPACE)
        return found[0][0] if found else None

    def _runs(self, which: str, *values: object) -> list[StoredRun]:
        columns = "run_uuid, status, start_time, end_time, artifact_uri"
        return [
            StoredRun(
                id=number,
                status=status,
                started=started,
                ended=ended or None,
                artifacts=artifacts or "",
                tags=dict(self._rows("SELECT key, value FROM tags WHERE run_uuid = ?", number)),
            )
            for number, status, started, ended, artifacts in self._rows(f"SELECT {columns} FROM runs {which}", *values)
        ]

    def _versions(self, name: str, which: str, *values: object) -> list[StoredVersion]:
        asked = "SELECT key, value FROM model_version_tags WHERE workspace = ? AND name = ? AND version = ?"
        return [
            StoredVersion(name=name, version=str(number), tags=dict(self._rows(asked, WORKSPACE, name, number)))
            for (number,) in self._rows(
                f"SELECT version FROM model_versions WHERE {_OF_MODEL} {which}", WORKSPACE, name, *values
            )
        ]

    def _rows(self, asked: str, *values: object) -> list[tuple[Any, ...]]:
        return self._opened.execute(asked, values).fetchall() if self._opened is not None else []


def _number(version: str) -> int:
    try:
        return int(version)
    except ValueError as error:
        raise NotReadHere(f"version {version}") from error
