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
    assert (missing.code, "no version has this alias" in missing.err) == (2, True)
