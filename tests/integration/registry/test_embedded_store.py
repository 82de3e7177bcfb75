"""A store in a SQLite file, by MLflow's own client: what is refused, in one line each, and what reading makes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from registry.conventions import experiment_name
from registry.errors import RegistryError, StoreUnreachable
from registry.mlflow import MlflowStore
from registry.ports import SQLITE, embedded_uri
from registry.versions import MlflowRegistry


def test_reading_makes_nothing(tmp_path: Path) -> None:
    store = MlflowStore(embedded_uri(tmp_path / "state"))
    assert (store.run("r"), store.search_runs("tidegate/m", {})) == (None, [])
    assert (store.aliases("m"), store.names_like("", 9)) == (None, [])
    assert list(tmp_path.iterdir()) == []


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
    impatient = MlflowStore(f"{tracking_uri}?timeout=0.1")
    run = impatient.create_run(name, name="r", started=1, tags={}, params={})
    with closing(sqlite3.connect(state / "mlflow.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnreachable, match=f"^MLflow store sqlite:///{state}/mlflow.db: .*database is locked"):
            impatient.log(run.id, tags={"a": "1"})


def test_a_file_that_is_no_database_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("kind: Delivery\n" * 100)
    with pytest.raises(StoreUnreachable, match=f"^MLflow store sqlite:///{tmp_path}/mlflow.db: .*not a database"):
        MlflowStore(f"{SQLITE}{tmp_path}/mlflow.db").names_like("", 1000)
