"""Runs and their artifacts in a Databricks workspace."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from registry.adapters.databricks.address import catalog_of, experiments_folder, use_profile
from registry.adapters.mlflow_library import LibraryStore, open_client, store_errors
from registry.conventions import NOTE
from registry.model import StoredMetric, StoredRun
from registry.record import shortened

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST_TAG_BYTES = 5000
"""What every store that Databricks has takes for the value of a run's tag, by its reference of the REST API."""


class WorkspaceRuns(LibraryStore):
    """A `RunStore` and an `ArtifactStore`. Experiments are files of the workspace, in a folder of ours."""

    @cached_property
    def _client(self) -> MlflowClient:
        use_profile(self._uri)
        return open_client(self._uri, catalog_of(self._uri))

    def create_run(
        self, experiment: str, *, name: str, started: int, tags: Mapping[str, str], params: Mapping[str, str]
    ) -> StoredRun:
        path = _path(experiment)
        with store_errors(self._uri):
            if self._client.get_experiment_by_name(path) is None:
                self._make_folder(posixpath.dirname(path))
        return super().create_run(path, name=name, started=started, tags=_fitting(tags), params=params)

    def search_runs(
        self, experiment: str, tags: Mapping[str, str], *, status: str | None = None, last: int | None = None
    ) -> Sequence[StoredRun]:
        return super().search_runs(_path(experiment), tags, status=status, last=last)

    def log(self, run: str, *, tags: Mapping[str, str] | None = None, metrics: Sequence[StoredMetric] = ()) -> None:
        super().log(run, tags=_fitting(tags or {}), metrics=metrics)

    def _make_folder(self, folder: str) -> None:
        """An experiment is made in a folder that is there; one that is there already stays as it is."""
        from databricks.sdk import WorkspaceClient

        WorkspaceClient().workspace.mkdirs(folder)


def _path(experiment: str) -> str:
    """`tidegate/NAME` anywhere else."""
    return f"{experiments_folder()}/{experiment.partition('/')[2]}"


def _fitting(tags: Mapping[str, str]) -> dict[str, str]:
    """The story of a delivery is the one tag that may be longer."""
    return {key: shortened(value, MOST_TAG_BYTES) if key == NOTE else value for key, value in tags.items()}
