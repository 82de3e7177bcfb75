"""`tidegate workflow image` on real layouts and against a real registry."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from fakes.engine_image import small_base
from fakes.registry_server import RegistryServer
from fakes.terminal import Tidegate


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    path = tmp_path / "installed" / "tidegate" / "cli" / "__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text("def main() -> int:\n    return 0\n")
    small_base(tmp_path / "base")
    return tmp_path / "installed"


def test_it_is_built_and_pushed_without_a_daemon(tidegate: Tidegate, installed: Path, tmp_path: Path) -> None:
    if shutil.which("docker-registry") is None or shutil.which("skopeo") is None:
        pytest.fail("run: sudo apt-get install -y docker-registry skopeo", pytrace=False)
    with RegistryServer(tmp_path / "registry") as registry:
        target = f"{registry.host}/tidegate:1"
        said = tidegate(
            "workflow", "image", str(installed), "--base", "base:base", "--push", target, "--output", "json"
        )
        assert said.code == 0, said.err
        shown = subprocess.run(
            ["skopeo", "inspect", "--tls-verify=false", "--config", f"docker://{target}"],
            capture_output=True,
            check=True,
        )
    assert said.json["pushed"].endswith(said.json["digest"])
    assert json.loads(shown.stdout)["config"]["Entrypoint"] == ["tidegate"]


def test_a_folder_without_tidegate_is_refused(tidegate: Tidegate, installed: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    said = tidegate("workflow", "image", "other", "--base", "base:base")
    assert (said.code, "tidegate is not in that folder" in said.err) == (2, True)
