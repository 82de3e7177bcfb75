"""tidegate as an image: what is in it, how it runs, and what the next release changes."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from fakes.engines.engine_image import AMD64, small_base

from engine_images.adapters.oci_build import base_in_layout, build_toolchain, every_file
from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.model import Descriptor

pytestmark = pytest.mark.long


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """As `pip install --target` leaves it, but small."""
    files = {
        "tidegate/__init__.py": "",
        "tidegate/cli/__init__.py": "def main() -> int:\n    print('delivered')\n    return 3\n",
        "tidegate/cli/__pycache__/__init__.cpython-311.pyc": "made while it ran",
        "gates/__init__.py": "",
        "tidegate-1.dist-info/METADATA": "Name: tidegate\n",
        "mlflow/__init__.py": "",
        "bin/envoy": "#!/bin/sh\n",
    }
    for place, text in files.items():
        path = tmp_path / "installed" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "installed/bin/envoy").chmod(0o755)
    return tmp_path / "installed"


def build(tmp_path: Path, installed: Path) -> tuple[OciLayout, Descriptor]:
    if not (tmp_path / "base").exists():
        small_base(tmp_path / "base")
    base, layout = base_in_layout(tmp_path / "base", "base", AMD64), OciLayout(tmp_path / "images")
    return layout, build_toolchain(layout, name="tidegate:1", base=base, files=every_file(installed))


def layers(layout: OciLayout, image: Descriptor) -> dict[str, Path]:
    """Where they are, by their titles; those of the base have none."""
    found = layout.read(image)["layers"]
    title = "org.opencontainers.image.title"
    return {each["annotations"][title]: layout.path(Descriptor.read(each)) for each in found if "annotations" in each}


def names_in(path: Path) -> set[str]:
    with tarfile.open(path) as layer:
        return set(layer.getnames())


def test_it_has_the_base_then_libraries_then_us(tmp_path: Path, installed: Path) -> None:
    layout, image = build(tmp_path, installed)
    assert len(layout.read(image)["layers"]) == 4
    names = {title: names_in(path) for title, path in layers(layout, image).items()}
    assert list(names) == ["libraries", "tidegate"]
    assert {"opt/tidegate/mlflow/__init__.py", "opt/tidegate/bin/envoy"} <= names["libraries"]
    assert {"opt/tidegate/gates/__init__.py", "opt/tidegate/bin/tidegate"} <= names["tidegate"]
    assert "opt/tidegate/tidegate/cli/__pycache__/__init__.cpython-311.pyc" in names["tidegate"]
    config = json.loads(layout.path(Descriptor.read(layout.read(image)["config"])).read_text())["config"]
    assert (config["User"], config["Entrypoint"]) == ("10001", ["tidegate"])
    assert "PATH=/opt/tidegate/bin:/opt/venv/bin:/usr/bin" in config["Env"]


def test_the_command_runs_from_its_layers_alone(tmp_path: Path, installed: Path) -> None:
    layout, image = build(tmp_path, installed)
    for path in layers(layout, image).values():
        with tarfile.open(path) as layer:
            layer.extractall(tmp_path / "root", filter="data")
    home = tmp_path / "root/opt/tidegate"
    variables = {"PATH": f"{home}/bin:{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(home)}
    ended = subprocess.run(["tidegate"], env=variables, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "delivered\n")


def test_the_same_folder_gives_the_same_image_and_a_release_changes_our_layer_alone(
    tmp_path: Path, installed: Path
) -> None:
    layout, image = build(tmp_path, installed)
    before = layers(layout, image)
    assert build(tmp_path, installed)[1] == image
    (installed / "gates/__init__.py").write_text("'''A new release.'''\n")
    after = layers(layout, build(tmp_path, installed)[1])
    assert (after["libraries"], after["tidegate"] != before["tidegate"]) == (before["libraries"], True)
