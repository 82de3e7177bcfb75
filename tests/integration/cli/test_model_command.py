"""`tidegate model` and versions that others logged; the rest stands in `tests/golden/machine/model.console`."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.terminal import Tidegate
from mlflow import MlflowClient

from registry.ports import embedded_uri
from tidegate.testing import write_tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "export")


@pytest.mark.usefixtures("delivery")
def test_a_version_that_others_logged_is_adopted_once(tidegate: Tidegate, name: str, folder: Path, state: Path) -> None:
    tidegate("model", "add", name, str(folder), "--alias", "champion")
    weights = sum(path.stat().st_size for path in folder.iterdir())
    (folder / "training_args.bin").write_bytes(b"pickled")
    client = MlflowClient(embedded_uri(state))
    run = client.create_run(client.create_experiment(f"training of {name}")).info
    client.log_artifacts(run.run_id, str(folder), "export")
    client.create_model_version(name, f"{run.artifact_uri}/export")
    client.set_registered_model_alias(name, "challenger", "2")
    listed = tidegate("model", "list", name).out.splitlines()[-1]
    assert listed == f"models:/{name}/2 (challenger): no digests yet; run: tidegate model add {name} 2"
    (adopts,) = tidegate("plan", "delivery.yaml", "--output", "json").json["adopts"]
    assert (adopts["model"], adopts["size_bytes"]) == (f"models:/{name}/2", weights)
    first, again = (tidegate("model", "add", name, "2", "--output", "json") for _ in range(2))
    assert (first.code, "files are read once" in first.err, again.err) == (0, True, ""), first.err
    assert "training_args.bin is not served: code, or what may hold pickled objects" in first.err
    assert first.json["digest"] == again.json["digest"]
    client.create_registered_model("team7.llm")
    near = tidegate("model", "list", "team7.lmm")
    assert (near.code, ", which has team7.llm; " in near.err) == (2, True), near.err
