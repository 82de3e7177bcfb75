"""What the tests of images need from the distribution."""

import shutil

import pytest

TOOLS = ("docker-registry", "skopeo", "umoci")


@pytest.fixture
def tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.fail(f"run: sudo apt-get install -y {' '.join(missing)}", pytrace=False)
