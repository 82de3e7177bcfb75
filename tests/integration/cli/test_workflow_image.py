"""`tidegate workflow image` on real layouts and against a real registry."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from fakes.engines.engine_image import small_base
from fakes.services.oci_registry import RegistryServer
from fakes.terminal import Tidegate

pytestmark = pytest.mark.long


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """As pip leaves it, of tidegate and of what it requires; each with one small module."""
    folder = tmp_path / "installed"
    requires = {
        "tidegate": ["httpx", "hera", 'openai ; extra == "deliver"', 'boto3 ; extra == "s3"', 'uv ; extra == "local"'],
        "httpx": [],
        "openai": ["httpx"],
        "boto3": [],
    }
    for name, others in requires.items():
        module = f"{name.replace('-', '_')}/cli/__init__.py"
        write(folder / module, "def main() -> int:\n    return 0\n")
        record = f"{name}-1.dist-info"
        needed = "".join(f"Requires-Dist: {other}\n" for other in others)
        write(folder / record / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n" + needed)
        write(folder / record / "RECORD", f"{module},,\n{record}/METADATA,,\n")
    small_base(tmp_path / "base")
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


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


def test_a_bucket_that_steps_read_is_an_extra_to_pack(tidegate: Tidegate, installed: Path, tmp_path: Path) -> None:
    def packed(*extras: str) -> set[str]:
        options = [word for extra in extras for word in ("--extra", extra)]
        said = tidegate("workflow", "image", str(installed), "--base", "base:base", *options, "--output", "json")
        assert said.code == 0, said.err
        layers = [path for path in (tmp_path / "images" / "blobs" / "sha256").iterdir() if path.stat().st_size]
        names = {name for path in layers for name in _names_in(path)}
        return {name for name in ("httpx", "openai", "boto3") if f"opt/tidegate/{name}/cli/__init__.py" in names}

    assert packed() == {"httpx", "openai"}
    assert packed("s3") == {"httpx", "openai", "boto3"}
    missing = tidegate("workflow", "image", str(installed), "--base", "base:base", "--extra", "local")
    assert (missing.code, "uv, which tidegate needs, is not in that folder" in missing.err) == (2, True)
    unknown = tidegate("workflow", "image", str(installed), "--base", "base:base", "--extra", "s4")
    assert unknown.code == 2
    assert unknown.err.startswith("tidegate: --extra s4: expected one of all, aws, azure, deliver, gcs, ")


def _names_in(blob: Path) -> list[str]:
    try:
        with tarfile.open(blob) as layer:
            return layer.getnames()
    except tarfile.ReadError:
        return []


def test_a_folder_that_is_not_there_is_told_before_any_registry_is_asked(tidegate: Tidegate, tmp_path: Path) -> None:
    said = tidegate("workflow", "image", "nowhere", "--base", "no.such.host.invalid/python@sha256:" + "0" * 64)
    assert (
        said.code,
        said.err.startswith("tidegate: nowhere is no folder; in a clone: `uv pip install --target nowhere"),
    ) == (
        2,
        True,
    )


def test_a_base_without_a_registry_may_have_been_meant_as_a_layout(
    tidegate: Tidegate, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for proxy in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    said = tidegate("workflow", "image", str(installed), "--base", "bases/python")
    assert said.code == 4, said.err
    assert said.err.startswith("tidegate: no OCI layout is in bases/python here, and docker.io does not answer: ")
