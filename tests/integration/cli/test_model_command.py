"""`tidegate model` against a real MLflow: what is registered is what is listed."""

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


def test_a_folder_becomes_the_next_version(tidegate: Tidegate, name: str, folder: Path) -> None:
    first = tidegate("model", "add", name, str(folder), "--alias", "champion", "--description", "the first")
    second = tidegate("model", "add", name, str(folder), "--output", "json")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f"models:/{name}/1 (champion): 6 files, 1 MB, digest ")
    assert (second.json["version"], second.json["aliases"]) == ("2", [])
    assert set(second.json["files"]) == {path.name for path in folder.iterdir()}


def test_the_list_has_every_version_with_its_aliases(tidegate: Tidegate, name: str, folder: Path) -> None:
    for _ in range(2):
        tidegate("model", "add", name, str(folder))
    moved = tidegate("model", "alias", name, "2", "challenger")
    assert moved.out.startswith(f"models:/{name}/2 (challenger): ")
    listed = tidegate("model", "list", name)
    assert [line.split(":")[1].split("/")[-1] for line in listed.out.splitlines()] == ["1", "2 (challenger)"]
    as_json = tidegate("model", "list", name, "--output", "json").json
    assert [(version["version"], version["aliases"]) for version in as_json] == [("1", []), ("2", ["challenger"])]


def test_a_script_gets_the_name_alone(tidegate: Tidegate, name: str, folder: Path) -> None:
    registered = tidegate("model", "add", name, str(folder), "-o", "name")
    moved = tidegate("model", "alias", name, "1", "champion", "-o", "name")
    adopted = tidegate("model", "add", name, "1", "-o", "name")
    assert {said.out for said in (registered, moved, adopted)} == {f"models:/{name}/1\n"}
    assert tidegate("model", "alias", name, "1", "champion", "-o", "json").json["aliases"] == ["champion"]


def test_an_unknown_alias_registers_nothing(tidegate: Tidegate, name: str, folder: Path) -> None:
    assert tidegate("model", "add", name, str(folder), "--alias", "latest").code == 2
    assert tidegate("model", "list", name).code == 2


def test_a_version_that_is_there_gets_an_alias_and_no_new_description(
    tidegate: Tidegate, name: str, folder: Path
) -> None:
    tidegate("model", "add", name, str(folder), "--alias", "champion")
    again = tidegate("model", "add", name, "champion", "--alias", "challenger", "-o", "json")
    assert (again.json["version"], again.json["aliases"]) == ("1", ["challenger", "champion"])
    assert tidegate("model", "add", name, "1", "--description", "again").code == 2
    missing = tidegate("model", "add", name, "nowhere")
    there = "no version has this alias; there are challenger (1), champion (1)"
    assert (missing.code, there in missing.err) == (2, True)


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
    assert (first.code, first.json["adopted_now"], again.json["adopted_now"]) == (0, True, False), first.err
    assert first.json["left_out"] == ["training_args.bin"]
    assert first.json["digest"] == again.json["digest"]
    client.create_registered_model("team7.llm")
    near = tidegate("model", "list", "team7.lmm")
    assert (near.code, ", which has team7.llm; " in near.err) == (2, True), near.err
