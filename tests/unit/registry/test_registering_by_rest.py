"""What is sent to an MLflow server to register a version, and what is left to MLflow's library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from fakes.services.scripted_mlflow import ScriptedMlflow

from registry.adapters.registering.server import ServerVersions
from registry.errors import StoreUnreachable
from registry.model import PendingVersion

PROXIED = PendingVersion(id="m-1", artifacts="mlflow-artifacts:/1/models/m-1/artifacts")
IN_A_BUCKET = PendingVersion(id="m-1", artifacts="s3://bucket/1/models/m-1/artifacts")


class Elsewhere:
    """A `VersionLog` that notes what it is given."""

    def __init__(self) -> None:
        self.uploaded: list[Path] = []

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        raise AssertionError

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        self.uploaded.append(folder)

    def abandon(self, pending: PendingVersion) -> None:
        raise AssertionError

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        raise AssertionError


class Scene(ScriptedMlflow):
    """Versions are registered there."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        super().__init__(*answers)
        self.elsewhere = Elsewhere()
        self.log = ServerVersions(self.server, self.elsewhere)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"0123456789")
    return tmp_path


def test_a_file_is_sent_whole_again_after_a_fault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.adapters.mlflow_http.PART_BYTES", 4)
    scene = Scene(httpx.ReadError("gone"), httpx.Response(503), httpx.Response(200, json={}))
    scene.log.upload(PROXIED, folder)
    assert [(each.method, each.url.path) for each in scene.requests] == [
        ("PUT", "/api/2.0/mlflow-artifacts/artifacts/1/models/m-1/artifacts/model/weights")
    ] * 3
    assert [each.content for each in scene.requests] == [b"0123456789"] * 3
    assert {each.headers["Content-Length"] for each in scene.requests} == {"10"}
    assert "Transfer-Encoding" not in scene.requests[0].headers


def test_what_lies_in_a_bucket_goes_there_by_mlflows_library(folder: Path) -> None:
    scene = Scene(httpx.Response(200, json={}))
    scene.log.upload(IN_A_BUCKET, folder)
    assert (scene.elsewhere.uploaded, scene.requests) == ([folder], [])


def test_a_version_is_never_made_twice() -> None:
    scene = Scene(httpx.Response(200, json={}), httpx.Response(200, json={}), httpx.ReadTimeout("slow"))
    with pytest.raises(StoreUnreachable, match="ReadTimeout"):
        scene.log.finish(PROXIED, "m", {"a": "1"}, None)
    *_, made = scene.requests
    assert [each.url.path for each in scene.requests].count(made.url.path) == 1
    body = {"name": "m", "source": "models:/m-1", "model_id": "m-1", "tags": [{"key": "a", "value": "1"}]}
    assert json.loads(made.content) == body
