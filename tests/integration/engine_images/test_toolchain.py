"""The image of workflows' steps that tests on clusters make: what is in it, and how it runs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from cluster.toolchain import pack
from fakes.engines.engine_image import base_with

from engine_images.adapters.oci_build import this_platform
from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.model import Descriptor

pytestmark = pytest.mark.long

INSTALLED = {
    "tidegate/__init__.py": "",
    "tidegate/cli/__init__.py": "def main() -> int:\n    print('delivered')\n    return 3\n",
    "bin/tidegate": "#!/no/such/python\n",
}
"""As `pip install --target` leaves it, but small."""


def test_the_command_runs_from_its_layer_alone(tmp_path: Path) -> None:
    for place, text in INSTALLED.items():
        path = tmp_path / "installed" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    base_with(tmp_path / "base", {"/base": b""}, platform=this_platform())
    layout = OciLayout(tmp_path / "images")
    image = pack(layout, f"{tmp_path / 'base'}:base", tmp_path / "installed")
    assert image == layout.manifest("tidegate")
    manifest = layout.read(image)
    said = layout.read(Descriptor.read(manifest["config"]))["config"]
    assert (said["User"], said["Entrypoint"]) == ("10001", ["tidegate"])
    assert {"PATH=/opt/tidegate/bin:/opt/venv/bin:/usr/bin", "PYTHONPATH=/opt/tidegate"} <= set(said["Env"])
    with tarfile.open(layout.path(Descriptor.read(manifest["layers"][-1]))) as layer:
        assert any(name.startswith("opt/tidegate/tidegate/cli/__pycache__/") for name in layer.getnames())
        layer.extractall(tmp_path / "root", filter="data")
    home = tmp_path / "root/opt/tidegate"
    variables = {"PATH": f"{home}/bin:{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(home)}
    ended = subprocess.run(["tidegate"], env=variables, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, "delivered\n")
