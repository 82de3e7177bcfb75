"""What a registered version is to MLflow, and what becomes of one whose upload ended in the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.services.mlflow_server import STORES
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from registry.conventions import SUMS, experiment_name
from registry.files import digest_files, sums_of
from registry.mlflow import MlflowStore
from registry.mlflow_client import as_global_store
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry

FIRST_COMMAND = """
import sys
from registry.mlflow_client import open_client
open_client(sys.argv[1])
"""


@pytest.fixture(params=STORES.values())
def uri(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def test_mlflows_library_reads_what_was_registered(uri: str, name: str, folder: Path, tmp_path: Path) -> None:
    version = MlflowRegistry(uri).register(name, folder)
    tags = {"tidegate.digest": version.digest, "tidegate.size_bytes": str(version.size_bytes)}
    client = MlflowClient(uri, registry_uri=uri)
    found = client.get_model_version(name, "1")
    assert (found.status, found.tags) == ("READY", tags)
    logged = client.get_logged_model(found.source.removeprefix("models:/"))
    assert (str(logged.status), logged.model_type) == ("READY", "LlamaForCausalLM")
    assert logged.artifact_location == client.get_model_version_download_uri(name, "1")
    with as_global_store(uri):
        kept = Path(download_artifacts(version.uri, dst_path=str(tmp_path / "kept")))
    assert digest_files(kept / "model") == version.files


def test_what_was_not_uploaded_to_its_end_is_deleted(
    uri: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MlflowStore, "put", interrupted)
    client = MlflowClient(uri, registry_uri=uri)
    with pytest.raises(KeyboardInterrupt):
        MlflowRegistry(uri).register(name, folder)
    experiment = client.get_experiment_by_name(experiment_name(name))
    assert experiment is not None
    assert client.search_logged_models([experiment.experiment_id]) == []


@pytest.mark.slow(reason="processes import MLflow and make its tables")
def test_two_first_commands_on_an_empty_state_make_one_store(tmp_path: Path) -> None:
    uri = embedded_uri(tmp_path / "state")
    first = [subprocess.Popen([sys.executable, "-c", FIRST_COMMAND, uri]) for _ in range(2)]
    assert [process.wait() for process in first] == [0, 0]


@pytest.mark.parametrize("store", STORES)
def test_what_a_run_logged_is_adopted_and_stays_where_it_is(
    request: pytest.FixtureRequest, store: str, name: str, folder: Path, tmp_path: Path
) -> None:
    uri = request.getfixturevalue(STORES[store])
    client = MlflowClient(uri, registry_uri=uri)
    place = None if uri.startswith("http") else (tmp_path / "artifacts").as_uri()
    run = client.create_run(client.create_experiment(name, place)).info
    client.log_artifacts(run.run_id, str(folder), "out/weights")
    client.create_registered_model(name)
    client.create_model_version(name, f"runs:/{run.run_id}/out", run.run_id)
    registry = MlflowRegistry(uri)

    version = registry.add(name, "1")

    assert (version.version, version.folders) == ("1", ("weights",))
    assert version.files == digest_files(folder)
    assert digest_files(registry.download(version, tmp_path / "engine")) == version.files
    assert registry.source(version).startswith(uri) == (store == "mlflow server")
    kept = Path(client.download_artifacts(run.run_id, f"tidegate/{name}/1/{SUMS}", str(tmp_path)))
    assert kept.read_text() == sums_of(version.files)
