"""One embedded MLflow for all tests of the room; names keep them apart."""

from __future__ import annotations

import inspect
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from fakes.clusters.served import Clusters, clusters, delivery_to, mark_images, write_golden_set
from fakes.delivery.ledger import refused_on_the_loop
from fakes.services.chat_servers import engines
from fakes.services.embedded_mlflow import write_embedded_mlflow
from fakes.services.http import QuietHandler, answering
from fakes.terminal import Said, Tidegate

from registry.mlflow import MlflowStore
from registry.ports import embedded_uri
from registry.versions import MlflowRegistry
from tidegate.cli import main
from tidegate.cli.project import write_example
from tidegate.testing import write_tiny_model


@contextmanager
def mlflow_asked_off_the_event_loop() -> Iterator[None]:
    """A question to MLflow that hangs would hold up every region, were it asked by the thread of the loop."""
    with pytest.MonkeyPatch.context() as patched:
        for question, asks in inspect.getmembers(MlflowStore, inspect.isfunction):
            if not question.startswith("_"):
                patched.setattr(MlflowStore, question, refused_on_the_loop(asks, question))
        yield


@pytest.fixture
def mute() -> Iterator[str]:
    """An MLflow that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class FullDisk(QuietHandler):
    """Answers everything by what MLflow answers when its database cannot be written."""

    def do_GET(self) -> None:
        self.answer('{"error_code": "INTERNAL_ERROR", "message": "database or disk is full"}', 500)

    do_POST = do_GET


@pytest.fixture
def full() -> Iterator[str]:
    """An MLflow whose disk is full."""
    with answering(FullDisk) as address:
        yield f"http://{address}"


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("machine") / ".tidegate"
    write_embedded_mlflow(state)
    return state


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A model name that no other test uses."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def tidegate(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tidegate:
    """Runs a command in this process, in a folder of its own, on the machine's state."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEGATE_STATE", str(state))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        # A command may set variables for all of its process, which here is the tests' too.
        with patch.dict(os.environ), mlflow_asked_off_the_event_loop():
            code = main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `tidegate init` writes."""
    folder = tmp_path_factory.mktemp("example")
    write_example(folder / "delivery.yaml")
    return folder


@pytest.fixture
def delivery(tidegate: Tidegate, example: Path, tmp_path: Path, name: str) -> Path:
    """A delivery.yaml as `tidegate init` writes it, of a model that no other test uses; commands run next to it."""
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "delivery.yaml"
    path.write_text(path.read_text().replace("model: {name: support-llm", f"model: {{name: {name}"))
    return path


@pytest.fixture
def on_clusters(
    registered: Path, name: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Clusters]]:
    """Sends the delivery to regions of clusters, a wave each, whose engines answer; `change` is made to its spec."""
    with ExitStack() as stack:

        def made(*regions: str, change: Callable[[dict[str, Any]], object] = lambda spec: None) -> Clusters:
            folder = registered.parent
            write_golden_set(folder)
            mark_images(MlflowRegistry(embedded_uri(state)), name)
            served = stack.enter_context(engines(folder / "champion" / "model"))
            spec = delivery_to([[each] for each in regions], name=name, engine=served.url)
            change(spec)
            registered.write_text(yaml.safe_dump(spec))
            there = stack.enter_context(clusters(spec, folder))
            monkeypatch.setenv("KUBECONFIG", str(there.servers.kubeconfig))
            return there

        yield made


@pytest.fixture
def registered(tidegate: Tidegate, delivery: Path, tmp_path: Path, name: str) -> Path:
    """The delivery's champion and challenger are in the registry."""
    for seed, alias in ((1, "champion"), (2, "challenger")):
        folder = write_tiny_model(tmp_path / alias, seed=seed)
        assert tidegate("model", "add", name, str(folder), "--alias", alias).code == 0
    return delivery
