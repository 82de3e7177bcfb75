"""Writes MLflow's tables in a SQLite file with the standard library: what registering a version needs, and no more.

Each change is one transaction, in a schema that is known to the letter; a test compares whole files with those that
MLflow's library writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from registry.adapters.mlflow_sqlite import PATIENCE_SECONDS, PROMPT, WORKSPACE, NotReadHere, Tables, leave_to_library
from registry.errors import RegistryError
from registry.model import PendingVersion

PENDING, READY = 1, 2
"""A logged model's status, as MLflow's `LoggedModelStatus` numbers it."""
Answer = TypeVar("Answer")


def write(path: Path, change: Callable[[WrittenTables], Answer]) -> Answer:
    """Carry out a change, whole or not at all.

    Raises:
        NotReadHere: only MLflow's library may do it; nothing was written.
        sqlite3.Error: it cannot be written.
    """
    if not path.is_file():
        raise NotReadHere("nobody has written it yet")
    address = f"{path.absolute().as_uri()}?mode=rw"
    with (
        leave_to_library(),
        closing(sqlite3.connect(address, uri=True, timeout=PATIENCE_SECONDS, isolation_level=None)) as opened,
    ):
        opened.execute("PRAGMA foreign_keys = ON")
        opened.execute("BEGIN IMMEDIATE")
        tables = WrittenTables(opened)
        tables.check()
        answer = change(tables)
        # Without it, closing takes everything back.
        opened.execute("COMMIT")
    return answer


class WrittenTables(Tables):
    """What is in them, to be changed; moments are milliseconds since 1970."""

    def log_model(self, experiment: str, name: str, kind: str, *, artifacts: str, at: int) -> PendingVersion:
        """A logged model that waits for its files; `artifacts` is where a new experiment has its own."""
        number, place = self._experiment(experiment, artifacts, at)
        if not place.startswith("file:///") or not set(place).isdisjoint("?#"):
            raise NotReadHere(place)
        model = f"m-{uuid4().hex}"
        pending = PendingVersion(id=model, artifacts=f"{place.rstrip('/')}/models/{model}/artifacts")
        self._insert(
            "logged_models",
            model_id=model,
            experiment_id=number,
            name=name,
            artifact_location=pending.artifacts,
            creation_timestamp_ms=at,
            last_updated_timestamp_ms=at,
            status=PENDING,
            lifecycle_stage="active",
            model_type=kind,
        )
        return pending

    def make_version(
        self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None, at: int
    ) -> str:
        """Its files are there: it becomes the next version of the registered model, whose number is returned."""
        model = self._rows("SELECT source_run_id FROM logged_models WHERE model_id = ?", pending.id)
        if model != [(None,)]:
            raise NotReadHere(f"logged model {pending.id}")
        ready = "UPDATE logged_models SET status = ?, last_updated_timestamp_ms = ? WHERE model_id = ?"
        self._rows(ready, READY, at, pending.id)
        self._touch_model(name, at)
        last = "SELECT coalesce(max(version), 0) FROM model_versions WHERE workspace = ? AND name = ?"
        of = {"name": name, "version": self._rows(last, WORKSPACE, name)[0][0] + 1, "workspace": WORKSPACE}
        self._insert(
            "model_versions",
            **of,
            creation_time=at,
            last_updated_time=at,
            description=description,
            current_stage="None",
            source=pending.source,
            status="READY",
            storage_location=pending.artifacts,
        )
        for key, value in tags.items():
            self._insert("model_version_tags", **of, key=key, value=value)
        return str(of["version"])

    def point(self, name: str, alias: str, version: str) -> None:
        """The alias is that version's from now on."""
        if self.model(name) is None or self.version(name, version) is None:
            raise NotReadHere(f"{name} {version}")
        self.take_away(name, alias)
        self._insert("registered_model_aliases", alias=alias, version=int(version), name=name, workspace=WORKSPACE)

    def take_away(self, name: str, alias: str) -> None:
        """The alias is no version's any more."""
        if self.model(name) is None:
            raise NotReadHere(name)
        away = "DELETE FROM registered_model_aliases WHERE workspace = ? AND name = ? AND alias = ?"
        self._rows(away, WORKSPACE, name, alias)

    def _experiment(self, name: str, artifacts: str, at: int) -> tuple[int, str]:
        """Its number and where its artifacts are; it is made when there is none."""
        asked = "SELECT experiment_id, artifact_location, lifecycle_stage FROM experiments"
        found = self._rows(f"{asked} WHERE workspace = ? AND name = ?", WORKSPACE, name)
        if not found:
            made = {"name": name, "artifact_location": artifacts, "creation_time": at, "last_update_time": at}
            self._insert("experiments", **made, lifecycle_stage="active", workspace=WORKSPACE)
            return self._experiment(name, artifacts, at)
        number, place, stage = found[0]
        if stage != "active":
            raise RegistryError(f"MLflow experiment {name} is deleted", hint="restore it in MLflow, or purge it")
        return number, place

    def _touch_model(self, name: str, at: int) -> None:
        tagged = "SELECT 1 FROM registered_model_tags WHERE workspace = ? AND name = ? AND key = ?"
        if self._rows(tagged, WORKSPACE, name, PROMPT):
            raise NotReadHere(f"{name} is a prompt")
        known = "SELECT 1 FROM registered_models WHERE workspace = ? AND name = ?"
        if not self._rows(known, WORKSPACE, name):
            self._insert("registered_models", name=name, creation_time=at, last_updated_time=at, workspace=WORKSPACE)
        changed = "UPDATE registered_models SET last_updated_time = ? WHERE workspace = ? AND name = ?"
        self._rows(changed, at, WORKSPACE, name)

    def _insert(self, table: str, **row: object) -> None:
        names, places = ", ".join(row), ", ".join("?" * len(row))
        self._rows(f"INSERT INTO {table} ({names}) VALUES ({places})", *row.values())
