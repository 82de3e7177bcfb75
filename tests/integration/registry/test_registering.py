"""What a registered version is to MLflow: the same as one that its own library describes and logs, in every field."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from fakes.services.mlflow_server import STORES
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.models import Model, ModelSignature
from mlflow.models.model import get_model_info
from mlflow.types import ColSpec, DataType, Schema

from registry.adapters.mlflow_library import as_global_store
from registry.adapters.mlflow_models import MlflowRegistry
from registry.adapters.mlflow_store import embedded_uri
from registry.adapters.registering.library import LibraryVersions
from registry.conventions import experiment_name

FIRST_COMMAND = """
import sys
from registry.adapters.mlflow_library import open_client
open_client(sys.argv[1])
"""
OF_ONE = {
    "artifact_path",
    "artifact_location",
    "model_id",
    "model_uri",
    "model_uuid",
    "name",
    "source",
    "utc_time_created",
    "version",
}
"""Fields that tell one version from the other."""
FLAVORS = {
    "transformers": {
        "transformers_version": "4.56.0",
        "code": None,
        "task": "text-generation",
        "instance_type": "TextGenerationPipeline",
        "pipeline_model_type": "LlamaForCausalLM",
        "source_model_name": "model",
        "model_binary": "model",
        "components": ["tokenizer"],
        "tokenizer_type": "AutoTokenizer",
        "torch_dtype": "torch.float32",
    },
    "python_function": {
        "loader_module": "mlflow.transformers",
        "python_version": "3.11",
        "env": {"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
    },
}


@pytest.fixture(params=STORES.values())
def uri(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def logged_by_the_library(client: MlflowClient, name: str, folder: Path, kept: Path, tags: Mapping[str, str]) -> None:
    """One version, by MLflow's own classes: the files of `kept`, described by MLflow itself."""
    found = client.get_experiment_by_name(experiment_name(folder.name))
    assert found is not None
    logged = client.create_logged_model(found.experiment_id, name=name, model_type="LlamaForCausalLM")
    staging = Path(shutil.copytree(kept, folder / "staging"))
    text = Schema([ColSpec(DataType.string)])
    signature = ModelSignature(inputs=text, outputs=text)
    model = Model(logged.artifact_location, signature=signature, model_uuid=logged.model_id, model_id=logged.model_id)
    for flavor, said in FLAVORS.items():
        model.add_flavor(flavor, **said)
    model.save(str(staging / "MLmodel"))
    client.log_model_artifacts(logged.model_id, str(staging))
    client.finalize_logged_model(logged.model_id, "READY")
    client.create_registered_model(name)
    with as_global_store(client.tracking_uri):
        source = f"models:/{logged.model_id}"
        client.create_model_version(name, source, tags=dict(tags), description="the first", model_id=logged.model_id)


def said(entity: object) -> dict[str, Any]:
    """What it says of itself, times aside."""
    fields = {key.lstrip("_"): value for key, value in vars(entity).items()}
    return {key: value for key, value in fields.items() if key not in OF_ONE and "time" not in key}


def read(client: MlflowClient, name: str) -> dict[str, Any]:
    """All that MLflow's library finds of the first version of a model, and of what that was made of."""
    version = client.get_model_version(name, "1")
    assert version.model_id is None or version.model_id == version.source.removeprefix("models:/")
    logged = client.get_logged_model(version.source.removeprefix("models:/"))
    assert logged.artifact_location == client.get_model_version_download_uri(name, "1")
    assert (version.creation_timestamp, logged.creation_timestamp) > (0, 0)
    experiment = client.get_experiment(logged.experiment_id)
    with as_global_store(client.tracking_uri):
        kept = Path(download_artifacts(f"models:/{name}/1"))
        info = get_model_info(f"models:/{name}/1")
    model = Model.load(str(kept))
    tags = {key: value.replace(name, "NAME") for key, value in logged.tags.items()}
    return {
        "version": said(version),
        "model": said(client.get_registered_model(name)) | {"latest_version": None},
        "logged model": said(logged) | {"tags": tags},
        "MLmodel": {key: value for key, value in model.to_dict().items() if key not in OF_ONE},
        "flavors": info.flavors,
        "signature": info.signature,
        "experiment": said(experiment),
        "files": sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()),
    }


def test_mlflows_library_reads_what_it_would_have_written(uri: str, name: str, folder: Path, tmp_path: Path) -> None:
    client = MlflowClient(uri, registry_uri=uri)
    version = MlflowRegistry(uri).register(name, folder, description="the first")
    with as_global_store(uri):
        kept = Path(download_artifacts(version.uri, dst_path=str(tmp_path / "kept")))
    tags = MlflowRegistry(uri).tags(version)
    other = tmp_path / name
    other.mkdir()
    logged_by_the_library(client, f"{name}-2", other, kept, tags)

    ours, theirs = read(client, name), read(client, f"{name}-2")
    assert ours == theirs
    assert ours["version"]["tags"] == tags
    assert str(ours["logged model"]["status"]) == "READY"


def test_what_was_not_uploaded_to_its_end_is_deleted(
    uri: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LibraryVersions, "upload", interrupted)
    client = MlflowClient(uri, registry_uri=uri)
    with pytest.raises(KeyboardInterrupt):
        MlflowRegistry(uri).register(name, folder)
    experiment = client.get_experiment_by_name(experiment_name(name))
    assert experiment is not None
    assert client.search_logged_models([experiment.experiment_id]) == []


KILLED = """
import os, sys
from pathlib import Path
from registry.adapters.mlflow_models import MlflowRegistry
from registry.adapters.registering.library import LibraryVersions
LibraryVersions.upload = lambda *_: os.kill(os.getpid(), 9)
MlflowRegistry(sys.argv[1]).register(sys.argv[2], Path(sys.argv[3]))
"""


@pytest.mark.slow(reason="processes import MLflow")
def test_what_a_killed_command_had_begun_is_deleted_by_the_next_one(
    uri: str, name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert subprocess.run([sys.executable, "-c", KILLED, uri, name, str(folder)], check=False).returncode == -9
    client = MlflowClient(uri, registry_uri=uri)
    experiment = client.get_experiment_by_name(experiment_name(name))
    assert experiment is not None
    assert [str(each.status) for each in client.search_logged_models([experiment.experiment_id])] == ["PENDING"]
    MlflowRegistry(uri).register(name, folder)
    assert [str(each.status) for each in client.search_logged_models([experiment.experiment_id])] == ["READY"]
    assert not list(tmp_path.glob("tidegate-*"))


@pytest.mark.slow(reason="processes import MLflow and make its tables")
def test_two_first_commands_on_an_empty_state_make_one_store(tmp_path: Path) -> None:
    uri = embedded_uri(tmp_path / "state")
    first = [subprocess.Popen([sys.executable, "-c", FIRST_COMMAND, uri]) for _ in range(2)]
    assert [process.wait() for process in first] == [0, 0]
