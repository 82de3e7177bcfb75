"""New versions in a registry that is another store than the one with their files.

It knows no logged model of the other store, and an MLflow server takes no address of artifacts that it cannot look
up. What it takes is a run's name: so the files are a run's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from registry.adapters.registering.library import upload_all
from registry.conventions import MODEL_FOLDER
from registry.model import PendingVersion
from registry.ports import ArtifactFiles, ModelStore, RunStore


class VersionsElsewhere:
    """A `VersionLog`: files go to one store, the version is made in another."""

    def __init__(self, runs: RunStore, files: ArtifactFiles, models: ModelStore) -> None:
        """`runs` and `files` are of the one with the files, `models` of the one with the versions."""
        self._runs, self._files, self._models = runs, files, models

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        shown = {"model": name, "architecture": kind}
        run = self._runs.create_run(experiment, name=f"{name}: files", started=_now(), tags={}, params=shown)
        return PendingVersion(
            id=run.id, run_folder=MODEL_FOLDER, artifacts=f"{run.artifacts.rstrip('/')}/{MODEL_FOLDER}"
        )

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        upload_all(self._files, pending, folder)

    def abandon(self, pending: PendingVersion) -> None:
        self._runs.delete_run(pending.id)

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        self._runs.end_run(pending.id, "FINISHED", ended=_now())
        return self._models.add_version(pending.becoming(name, tags, description))


def _now() -> int:
    return int(time.time() * 1000)
