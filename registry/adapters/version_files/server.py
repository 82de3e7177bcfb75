"""Files of model versions that an MLflow server hands out itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from registry.adapters.mlflow_address import root_on
from registry.adapters.mlflow_http import MlflowServer
from registry.adapters.mlflow_rest import artifact_path, files_below
from registry.ports import ArtifactFiles


class ServerFiles:
    """An `ArtifactFiles`. What lies elsewhere, such as in a bucket, is left to another one."""

    def __init__(self, server: MlflowServer, elsewhere: ArtifactFiles) -> None:
        self._server, self._elsewhere = server, elsewhere

    def listed(self, address: str) -> Mapping[str, int]:
        root = root_on(self._server.url, address)
        return self._elsewhere.listed(address) if root is None else dict(sorted(files_below(self._server, root)))

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        root = root_on(self._server.url, address)
        if root is None:
            return self._elsewhere.parts(address, path)
        return self._server.parts(artifact_path(root, path))

    def put(self, address: str, path: str, file: Path) -> None:
        root = root_on(self._server.url, address)
        if root is None:
            self._elsewhere.put(address, path, file)
        else:
            self._server.upload(artifact_path(root, path), file)
