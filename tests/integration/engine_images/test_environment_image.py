"""The engine environment of a machine as an image: its Python runs there, at the same place, with what it had."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, base_with

from engine_images.adapters.oci_build import base_in_layout, build_environment, require_environment
from engine_images.adapters.oci_layout import OciLayout
from engine_images.errors import BrokenImage
from engine_images.model import EngineEnvironment
from engine_images.oci.model import Base, Source

pytestmark = pytest.mark.long

GCC = "/usr/bin/gcc"
PROGRAM = "import json, fast, torch, vllm; print(json.dumps([fast.SAID, torch.SAID, vllm.SAID]))"


@pytest.fixture
def environment(tmp_path: Path) -> EngineEnvironment:
    """Made as `tidegate setup` makes it, on the Python of these tests; its packages are of three lines."""
    home = tmp_path / "engine"
    subprocess.run(
        [Path(sys.executable).with_name("uv"), "venv", "--quiet", "--python", sys.executable, home], check=True
    )
    [site] = home.glob("lib/python*/site-packages")
    for name in ("fast", "nvidia", "torch", "vllm"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"SAID = {name!r}\n")
    return EngineEnvironment(python=str(home / "bin/python"), vllm="0.32.0", recipe="one")


def system(root: Path, *places: str, libraries: Mapping[str, Source] | None = None) -> Base:
    """An operating system: libraries of this one, and files at other places, in which nobody looks."""
    libraries = _libraries() if libraries is None else libraries
    base_with(root, {**libraries, **dict.fromkeys(places, b"")}, executable=libraries)
    return base_in_layout(root, "base", AMD64)


@cache
def _libraries() -> dict[str, Source]:
    """What the dynamic linker loads for this Python and for its modules of C."""
    python = Path(sys.executable).resolve()
    modules = [python, *python.parents[1].glob("lib/python3*/lib-dynload/*.so")]
    told = subprocess.run(["ldd", *modules], capture_output=True, text=True, check=False).stdout
    return {place: Path(place) for place in re.findall(r"(/\S+\.so\S*)", told) if not place.endswith(":")}


@pytest.mark.usefixtures("tools")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root")
@pytest.mark.long
def test_its_python_runs_in_the_image_where_it_runs_here(tmp_path: Path, environment: EngineEnvironment) -> None:
    base, layout = system(tmp_path / "os", GCC), OciLayout(tmp_path / "images")
    image = build_environment(layout, name="engine-base:1", base=base, environment=environment)
    again = build_environment(layout, name="engine-base:again", base=base, environment=environment)
    assert again == image
    titles = [each["annotations"]["org.opencontainers.image.title"] for each in layout.read(image)["layers"][1:]]
    assert titles[-4:] == ["CUDA", "torch", "libraries", "vLLM"]
    unpack = ["umoci", "raw", "unpack", "--rootless", "--image", f"{layout.root}:engine-base:1", tmp_path / "rootfs"]
    subprocess.run(unpack, check=True, capture_output=True)
    # Nothing of this machine is left to it.
    shutil.move(tmp_path / "engine", tmp_path / "away")
    there = subprocess.run(
        ["chroot", tmp_path / "rootfs", environment.python, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (there.returncode, there.stdout.strip()) == (0, '["fast", "torch", "vllm"]'), there.stderr
    assert require_environment(base_in_layout(layout.root, "engine-base:1", AMD64), environment)


def test_what_an_operating_system_lacks_is_named(tmp_path: Path, environment: EngineEnvironment) -> None:
    bare, layout = system(tmp_path / "os", libraries={}), OciLayout(tmp_path / "images")
    with pytest.raises(BrokenImage, match=r"^the base lacks a C compiler \(gcc, cc, clang\), .*libc\.so\.6"):
        build_environment(layout, name="x:1", base=bare, environment=environment)
    assert not (layout.root / "index.json").exists()


def test_a_base_with_another_environment_is_refused(tmp_path: Path, environment: EngineEnvironment) -> None:
    layout = OciLayout(tmp_path / "images")
    build_environment(layout, name="b:1", base=system(tmp_path / "os", GCC), environment=environment)
    other = environment.model_copy(update={"recipe": "two"})
    with pytest.raises(BrokenImage, match="another engine environment: recipe one where two is expected"):
        require_environment(base_in_layout(layout.root, "b:1", AMD64), other)


def test_a_base_of_somebody_else_is_looked_into(tmp_path: Path, environment: EngineEnvironment) -> None:
    with pytest.raises(BrokenImage, match=rf"^the base lacks {environment.python}, a C compiler"):
        require_environment(system(tmp_path / "os"), environment)
    whole = system(tmp_path / "whole", GCC, environment.python)
    assert require_environment(whole, environment)
    # In a registry nobody looks into gigabytes; where no label tells, nothing is known.
    assert not require_environment(whole.model_copy(update={"layout": None}), environment)
