"""New versions in a registry that is another store than the one with their files.

It knows no logged model of the other store, and an MLflow server takes no address of artifacts that it cannot look
up. What it takes is a run's name: so the files are a run's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from registry.conventions import MODEL_FOLDER
from registry.errors import StoreUnreachable
from registry.model import PendingVersion, StoredRun
from registry.ports import ArtifactStore, ModelStore, RunStore


class VersionsElsewhere:
    """A `VersionLog`: files go to one store, the version is made in another."""

    def __init__(self, runs: RunStore, artifacts: ArtifactStore, models: ModelStore) -> None:
        """`runs` and `artifacts` are of the one with the files, `models` of the one with the versions."""
        self._runs, self._artifacts, self._models = runs, artifacts, models

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        shown = {"model": name, "architecture": kind}
        run = self._runs.create_run(experiment, name=f"{name}: files", started=_now(), tags={}, params=shown)
        return PendingVersion(
            id=run.id, run_folder=MODEL_FOLDER, artifacts=f"{run.artifacts.rstrip('/')}/{MODEL_FOLDER}"
        )

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        run = self._run(pending)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            below = file.relative_to(folder).parent.as_posix()
            self._artifacts.upload(run, file, pending.run_folder if below == "." else f"{pending.run_folder}/{below}")

    def abandon(self, pending: PendingVersion) -> None:
        self._runs.delete_run(pending.id)

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        self._runs.end_run(pending.id, "FINISHED", ended=_now())
        return self._models.add_version(pending.becoming(name, tags, description))

    def _run(self, pending: PendingVersion) -> StoredRun:
        run = self._runs.run(pending.id)
        if run is None:
            raise StoreUnreachable(f"MLflow run {pending.id} is gone", hint="register the folder again")
        return run


def _now() -> int:
    return int(time.time() * 1000)
