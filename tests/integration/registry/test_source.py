"""Where an image without weights finds them: an address of MLflow's server, from which anybody may get the files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from engine_images.entrypoint.journal import EventLog
from engine_images.entrypoint.weights import Source, ensure
from registry.versions import MlflowRegistry


def test_the_entrypoint_pulls_a_versions_files_from_mlflow_itself(
    server: str, name: str, tmp_path: Path, folder: Path
) -> None:
    registry = MlflowRegistry(server)
    version = registry.register(name, folder)
    source = registry.source(version)

    assert source.startswith(f"{server}/api/2.0/mlflow-artifacts/artifacts/")
    assert MlflowRegistry(server.replace("http://", "http://somebody:secret@")).source(version) == source
    pulled = ensure(tmp_path / "weights", version.digest, version.files, [Source(source)], EventLog(as_json=False))
    digests = {path: hashlib.sha256((pulled / path).read_bytes()).hexdigest() for path in version.files}
    assert digests == dict(version.files)
