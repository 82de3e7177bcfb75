"""What the tests of images need from the distribution."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.services.oci_registry import RegistryServer

TOOLS = ("docker-registry", "skopeo", "umoci")


@pytest.fixture
def tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)} missing; run: make test-tools", pytrace=False)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryServer]:
    with RegistryServer(tmp_path / "registry") as server:
        yield server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte: the kernel itself says that it is full."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    yield small
    subprocess.run(["umount", str(small)], check=True)
