"""A store in a SQLite file, by MLflow's own client: what is refused, in one line each, and what reading makes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from registry.adapters.mlflow_library import SQLITE, LibraryStore
from registry.adapters.mlflow_models import MlflowRegistry
from registry.adapters.mlflow_store import embedded_uri, open_store
from registry.conventions import experiment_name
from registry.errors import RegistryError, StoreUnreachable


def test_reading_makes_nothing(tmp_path: Path) -> None:
    store = open_store(embedded_uri(tmp_path / "state"))
    assert (store.runs.run("r"), store.runs.search_runs("tidegate/m", {})) == (None, [])
    assert (store.models.model("m"), store.models.names_like("", 9)) == (None, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["..", "report/../..", "/etc"])
def test_no_artifact_is_read_outside_of_its_run(tracking_uri: str, name: str, tmp_path: Path, folder: str) -> None:
    opened = open_store(tracking_uri)
    store, run = opened.artifacts, opened.runs.create_run(name, name="r", started=1, tags={}, params={})
    (tmp_path / "passwd").write_text("secret")
    store.upload(run, tmp_path / "passwd", "report")

    def refused(asked: Callable[[], object]) -> bool:
        try:
            return asked() == {}
        except RegistryError:
            return True

    assert refused(lambda: store.files(run, folder))
    assert refused(lambda: store.download(run, f"{folder}/passwd", tmp_path / "stolen") or {})
    assert not (tmp_path / "stolen").exists()


def test_a_deleted_experiment_is_said_so(tracking_uri: str, name: str, folder: Path) -> None:
    registry, client = MlflowRegistry(tracking_uri), MlflowClient(tracking_uri, registry_uri=tracking_uri)
    registry.register(name, folder)
    experiment = client.get_experiment_by_name(experiment_name(name))
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    with pytest.raises(RegistryError, match=f"experiment tidegate/{name} is deleted; restore it"):
        registry.register(name, folder)


@pytest.mark.slow(reason="MLflow tries a locked file for 20 seconds")
def test_a_file_that_stays_locked_is_said_in_one_line(tracking_uri: str, state: Path, name: str) -> None:
    impatient = LibraryStore(f"{tracking_uri}?timeout=0.1")
    run = impatient.create_run(name, name="r", started=1, tags={}, params={})
    with closing(sqlite3.connect(state / "mlflow.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnreachable, match=f"^MLflow store sqlite:///{state}/mlflow.db: .*database is locked"):
            impatient.log(run.id, tags={"a": "1"})


def test_a_file_that_is_no_database_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("kind: Delivery\n" * 100)
    with pytest.raises(StoreUnreachable, match=f"^MLflow store sqlite:///{tmp_path}/mlflow.db: .*not a database"):
        LibraryStore(f"{SQLITE}{tmp_path}/mlflow.db").names_like("", 1000)
