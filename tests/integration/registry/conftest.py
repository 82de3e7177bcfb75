"""One SQLite store and one server for all tests of the room: making one takes seconds. Names keep them apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.services.mlflow_server import guarded_mlflow_server, shared_mlflow_server

from registry.ports import embedded_uri
from tidegate.testing import write_tiny_model


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def tracking_uri(state: Path) -> str:
    return embedded_uri(state)


@pytest.fixture(scope="session")
def server() -> str:
    """A tracking server over another store."""
    return shared_mlflow_server()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One that asks for a name and password, which its address has."""
    with guarded_mlflow_server(tmp_path_factory.mktemp("guarded")) as uri:
        yield uri


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A model name that no other test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "source")
