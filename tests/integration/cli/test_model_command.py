"""`tidegate model` against a real MLflow: what is registered is what is listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.terminal import Tidegate

from tidegate.testing import write_tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "export")


def test_a_folder_becomes_the_next_version(tidegate: Tidegate, name: str, folder: Path) -> None:
    first = tidegate("model", "register", name, str(folder), "--alias", "champion", "--description", "the first")
    second = tidegate("model", "register", name, str(folder), "--output", "json")
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f"models:/{name}/1 (champion): 6 files, 1 MB, digest ")
    assert (second.json["version"], second.json["aliases"]) == ("2", [])
    assert set(second.json["files"]) == {path.name for path in folder.iterdir()}


def test_the_list_has_every_version_with_its_aliases(tidegate: Tidegate, name: str, folder: Path) -> None:
    for _ in range(2):
        tidegate("model", "register", name, str(folder))
    moved = tidegate("model", "alias", name, "2", "challenger")
    assert moved.out.startswith(f"models:/{name}/2 (challenger): ")
    listed = tidegate("model", "list", name)
    assert [line.split(":")[1].split("/")[-1] for line in listed.out.splitlines()] == ["1", "2 (challenger)"]
    as_json = tidegate("model", "list", name, "--output", "json").json
    assert [(version["version"], version["aliases"]) for version in as_json] == [("1", []), ("2", ["challenger"])]


def test_a_script_gets_the_name_alone(tidegate: Tidegate, name: str, folder: Path) -> None:
    registered = tidegate("model", "register", name, str(folder), "-o", "name")
    moved = tidegate("model", "alias", name, "1", "champion", "-o", "name")
    adopted = tidegate("model", "adopt", name, "1", "-o", "name")
    assert {said.out for said in (registered, moved, adopted)} == {f"models:/{name}/1\n"}
    assert tidegate("model", "alias", name, "1", "champion", "-o", "json").json["aliases"] == ["champion"]


def test_an_alias_moves_from_one_version_to_the_other(tidegate: Tidegate, name: str, folder: Path) -> None:
    for alias in ("champion", "challenger"):
        tidegate("model", "register", name, str(folder), "--alias", alias)
    tidegate("model", "alias", name, "1", "challenger")
    as_json = tidegate("model", "list", name, "--output", "json").json
    assert [version["aliases"] for version in as_json] == [["challenger", "champion"], []]


def test_a_model_that_nobody_registered_is_a_usage_error(tidegate: Tidegate) -> None:
    said = tidegate("model", "list", "nobody")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("tidegate: models:/nobody: ")
    assert said.err.count("\n") == 1


def test_a_version_that_is_not_there_gets_no_alias(tidegate: Tidegate, name: str, folder: Path) -> None:
    tidegate("model", "register", name, str(folder))
    said = tidegate("model", "alias", name, "9", "champion")
    assert said.code == 2
    assert f"models:/{name}/9" in said.err


def test_a_folder_that_is_no_model_is_not_registered(tidegate: Tidegate, name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = tidegate("model", "register", name, str(tmp_path / "empty"))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("tidegate: ")
    assert tidegate("model", "list", name).code == 2


def test_an_unknown_alias_registers_nothing(tidegate: Tidegate, name: str, folder: Path) -> None:
    assert tidegate("model", "register", name, str(folder), "--alias", "latest").code == 2
    assert tidegate("model", "list", name).code == 2
