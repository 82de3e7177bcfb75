"""New versions on an MLflow server, by its REST API 2.0 and its mlflow-artifacts API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from registry.adapters.mlflow_address import API, root_on
from registry.adapters.mlflow_http import MlflowServer
from registry.adapters.mlflow_rest import RestExperiments, RestModels, artifact_path
from registry.model import PendingVersion
from registry.ports import VersionLog


class ServerVersions:
    """A `VersionLog`. Files that do not go through the server are left to another one."""

    def __init__(self, server: MlflowServer, elsewhere: VersionLog) -> None:
        self._server, self._elsewhere = server, elsewhere
        self._experiments, self._models = RestExperiments(server), RestModels(server)

    def begin(self, experiment: str, name: str, kind: str) -> PendingVersion:
        body = {"experiment_id": self._experiments.made(experiment), "name": name, "model_type": kind}
        made = self._server.send("POST", f"{API}/logged-models", body, may_repeat=False)["model"]["info"]
        return PendingVersion(id=made["model_id"], artifacts=made["artifact_uri"])

    def upload(self, pending: PendingVersion, folder: Path) -> None:
        root = root_on(self._server.url, pending.artifacts)
        if root is None:
            self._elsewhere.upload(pending, folder)
            return
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            self._server.upload(artifact_path(root, file.relative_to(folder).as_posix()), file)

    def abandon(self, pending: PendingVersion) -> None:
        self._server.send("DELETE", f"{API}/logged-models/{pending.id}", {})

    def finish(self, pending: PendingVersion, name: str, tags: Mapping[str, str], description: str | None) -> str:
        ready = {"model_id": pending.id, "status": "LOGGED_MODEL_READY"}
        self._server.send("PATCH", f"{API}/logged-models/{pending.id}", ready)
        return self._models.add_version(pending.becoming(name, tags, description))
