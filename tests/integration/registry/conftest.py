"""One SQLite store for all tests of the room, because making one takes seconds; names keep them apart."""

from pathlib import Path

import pytest
from fakes.tiny_model import write_tiny_model

from registry.adapters.mlflow_store import embedded_uri


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def tracking_uri(state: Path) -> str:
    return embedded_uri(state)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A model name that no other test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "source")
