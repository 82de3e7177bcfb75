"""Versions and aliases over MLflow in memory; `test_store.py` shows that MLflow keeps what that does."""

from pathlib import Path

import pytest
from fakes.delivery.store import MemoryStore

from registry.files import digest_files, whole_digest
from registry.model import EngineRecord, Serving
from registry.versions import MlflowRegistry
from tidegate.testing import write_tiny_model


@pytest.fixture
def registry() -> MlflowRegistry:
    return MlflowRegistry(MemoryStore())


@pytest.fixture
def name() -> str:
    return "support-llm"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "source")


def test_a_registered_folder_is_found_by_number_and_alias(registry: MlflowRegistry, name: str, folder: Path) -> None:
    version = registry.register(name, folder, alias="champion")

    assert version.uri == f"models:/{name}/1"
    assert version.files == digest_files(folder)
    assert version.digest == whole_digest(version.files)
    assert version.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert version.aliases == ("champion",)
    assert registry.resolve(name, "1") == registry.resolve(name, "champion") == version


def test_a_download_is_the_registered_folder_and_replaces_one_that_was_damaged(
    registry: MlflowRegistry, name: str, folder: Path, tmp_path: Path
) -> None:
    version = registry.register(name, folder)
    got = registry.download(version, tmp_path / "engine")
    assert got == tmp_path / "engine" / "model"
    assert [path.name for path in (tmp_path / "engine").iterdir()] == ["model"]
    for _ in range(2):
        assert digest_files(registry.download(version, tmp_path / "engine")) == version.files
        (got / "config.json").write_text("{}")
        (got / "extra.json").write_text("{}")


def test_marks_are_written(registry: MlflowRegistry, name: str, folder: Path) -> None:
    version = registry.register(name, folder)

    registry.mark(version, {"tidegate.taken-back": "too slow"})
    registry.mark(version, Serving(replaced="1").tag)
    now = EngineRecord(name="1", fingerprint="d" * 64, settings={})
    registry.mark(version, Serving(now=now).tag)

    assert registry.resolve(name, "1") == version
    # What is not given stays.
    assert Serving.of(registry.tags(version)) == Serving(now=now, replaced="1")
