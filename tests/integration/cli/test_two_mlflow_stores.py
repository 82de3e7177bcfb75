"""Runs and artifacts in an MLflow server, model versions and aliases in another store, as MLFLOW_REGISTRY_URI says."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.services.mlflow_server import shared_mlflow_server
from fakes.terminal import Tidegate
from mlflow import MlflowClient

from registry.conventions import experiment_name
from registry.deliveries import MlflowDeliveries
from registry.errors import UnknownModel
from registry.mlflow_client import embedded_uri, open_client
from registry.model import Event
from registry.versions import MlflowRegistry
from tidegate.core.clock import SystemClock
from tidegate.testing import write_tiny_model

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow(reason="two stores, one of them made for each test")]


@pytest.fixture
def both(tidegate: Tidegate, state: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The addresses, as commands are told them: of runs and artifacts, and of model versions."""
    stores = shared_mlflow_server(), embedded_uri(state)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", stores[0])
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", stores[1])
    return stores


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "source")


@pytest.mark.long
def test_a_version_is_registered_in_the_one_and_its_files_lie_in_the_other(
    both: tuple[str, str], name: str, folder: Path, tmp_path: Path
) -> None:
    registry = MlflowRegistry(*both)
    made = registry.register(name, folder, description="the first", alias="challenger")
    runs, versions = (open_client(uri) for uri in both)

    kept = versions.get_model_version_by_alias(name, "challenger")
    assert (str(kept.version), kept.description, kept.tags["tidegate.digest"]) == ("1", "the first", made.digest)
    assert runs.search_registered_models(f"name = '{name}'") == []
    assert versions.get_experiment_by_name(experiment_name(name)) is None
    experiment = runs.get_experiment_by_name(experiment_name(name))
    assert experiment is not None
    (run,) = runs.search_runs([experiment.experiment_id])
    assert (kept.source, kept.run_id, run.info.status) == (
        f"runs:/{run.info.run_id}/model",
        run.info.run_id,
        "FINISHED",
    )
    assert MlflowDeliveries(both[0]).deliveries(name) == []
    assert registry.source(made).startswith(f"{both[0]}/api/2.0/mlflow-artifacts/artifacts/")
    assert registry.download(made, tmp_path / "engine").joinpath("config.json").is_file()
    with pytest.raises(UnknownModel, match=f"no such model in {both[1]}, which has"):
        registry.resolve(f"{name}-none", "1")


def test_a_version_that_mlflows_own_client_logged_is_adopted(
    both: tuple[str, str], name: str, folder: Path, tmp_path: Path
) -> None:
    open_client(both[1])
    client = MlflowClient(both[0], registry_uri=both[1])
    run = client.create_run(client.create_experiment(name))
    client.log_artifacts(run.info.run_id, str(folder), "weights")
    client.create_registered_model(name)
    client.create_model_version(name, f"runs:/{run.info.run_id}/weights", run_id=run.info.run_id)

    registry = MlflowRegistry(*both)
    adopted = registry.adopt(name, "1")
    assert set(adopted.files) == {path.name for path in folder.iterdir()}
    assert registry.download(adopted, tmp_path / "engine").joinpath("config.json").is_file()


def test_deliveries_are_runs_and_move_aliases(both: tuple[str, str], name: str, folder: Path, tmp_path: Path) -> None:
    registry = MlflowRegistry(*both)
    first = registry.register(name, folder, alias="champion")
    second = registry.register(name, write_tiny_model(tmp_path / "second", seed=2), alias="challenger")
    deliveries = MlflowDeliveries(both[0])
    ledger = deliveries.open_delivery(second, first, spec_digest="0" * 64)
    ledger.append(Event(at=SystemClock().now(), step="build", kind="done", message="built"))
    registry.promote(second)
    ledger.close("delivered", "all regions")

    assert [each.outcome for each in deliveries.deliveries(name)] == ["delivered"]
    assert MlflowDeliveries(both[1]).deliveries(name) == []
    aliases = open_client(both[1]).get_registered_model(name).aliases
    assert {alias: str(of) for alias, of in aliases.items()} == {"champion": "2", "previous": "1"}


def test_commands_say_both(
    both: tuple[str, str],
    name: str,
    delivery: Path,
    folder: Path,
    *,
    tidegate: Tidegate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tidegate("model", "add", name, str(folder), "--alias", "champion").code == 0
    told = f"MLflow: runs and artifacts in {both[0]}, model versions in {both[1]}\n"
    assert told in tidegate("status", str(delivery)).out
    said = tidegate("status", str(delivery), "--output", "json").json
    assert said["mlflow"] == {"tracking": both[0], "registry": both[1]}
    monkeypatch.delenv("MLFLOW_REGISTRY_URI")
    assert "MLflow:" not in tidegate("status", str(delivery)).out
