"""Files in object stores; `test_store.py` has those of folders and servers."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.services import object_stores
from fakes.services.object_stores import AZURE_ACCOUNT, AZURITE, BUCKET, connection_string

from registry.errors import StoreUnreachable
from registry.mlflow import MlflowStore

ROOTS = {
    "s3": f"s3://{BUCKET}",
    "gcs": f"gs://{BUCKET}",
    "azure": f"wasbs://{BUCKET}@{AZURE_ACCOUNT}.blob.core.windows.net",
}
azure_is_there = pytest.mark.skipif(not AZURITE.exists(), reason="no Azurite; `make test-tools` installs it")
OBJECT_STORES = ["s3", "gcs", pytest.param("azure", marks=azure_is_there)]
PART_BYTES = 8 << 20
"""What boto3 asks for at once."""
pytestmark = pytest.mark.timeout(240)


@dataclass
class Kept:
    """A store, and an address in it that no other test has."""

    kind: str
    files: MlflowStore
    address: str
    server: str = ""
    """Its address."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Starts an object store when it is first asked for, and lets the environment lead there."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:

        def address(kind: str) -> str:
            if kind not in addresses:
                server = getattr(object_stores, kind)(tmp_path_factory.mktemp(kind))
                addresses[kind], settings = stack.enter_context(server)
                for name, value in settings.items():
                    environment.setenv(name, value)
            return addresses[kind]

        yield address


@pytest.fixture
def at(started: Callable[[str], str], name: str) -> Callable[[str], Kept]:
    """A store of that kind."""

    def kept(kind: str) -> Kept:
        server = started(kind)
        return Kept(kind, MlflowStore("sqlite:///none.db"), f"{ROOTS[kind]}/of-tests/{name}", server)

    return kept


@contextmanager
def written(folder: Path, content: bytes) -> Iterator[Path]:
    """A file with that content."""
    file = folder / "source"
    file.write_bytes(content)
    yield file


@pytest.mark.parametrize("kind", OBJECT_STORES)
def test_what_was_put_is_listed_with_its_size_and_read_as_it_was(
    kind: str, at: Callable[[str], Kept], tmp_path: Path
) -> None:
    kept = at(kind)
    contents = {
        "model/config.json": b"{}",
        "model/deep er/empty": b"",
        "model/weights.safetensors": os.urandom(PART_BYTES + 5),
    }
    for path, content in contents.items():
        with written(tmp_path, content) as file:
            kept.files.put(kept.address, path, file)
            # What is put twice is there once.
            kept.files.put(kept.address, path, file)

    assert dict(kept.files.listed(kept.address)) == {path: len(content) for path, content in contents.items()}
    assert dict(kept.files.listed(f"{kept.address}/model")) == {
        path.removeprefix("model/"): len(content) for path, content in contents.items()
    }
    for path, content in contents.items():
        kept.files.fetch(kept.address, path, tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == content


@pytest.mark.parametrize("kind", OBJECT_STORES)
def test_what_is_not_there_is_told_in_one_line(kind: str, at: Callable[[str], Kept], tmp_path: Path) -> None:
    kept = at(kind)
    with pytest.raises(StoreUnreachable) as caught:
        kept.files.fetch(kept.address, "model/config.json", tmp_path / "got")
    assert "\n" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.long
@azure_is_there
def test_a_key_that_azure_refuses_is_in_no_message_and_no_log_line(
    at: Callable[[str], Kept], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = at("azure")
    key = base64.b64encode(b"hunter2" * 9).decode()
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string(kept.server, key))
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StoreUnreachable) as caught:
        MlflowStore("sqlite:///none.db").listed(kept.address)
    told = f"{caught.value} {caught.value.hint} {caught.value.detail} {caplog.text}"
    assert key not in told
    assert "SharedKey" not in told
    assert "AZURE_STORAGE_CONNECTION_STRING" in str(caught.value.hint)
