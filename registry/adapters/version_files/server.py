"""Files of model versions that an MLflow server hands out itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from registry.adapters.mlflow_address import API, root_on
from registry.adapters.mlflow_http import MlflowServer
from registry.adapters.mlflow_rest import artifact_path, files_below
from registry.ports import ArtifactFiles


class ServerFiles:
    """An `ArtifactFiles`. What lies elsewhere, such as in a bucket, is left to another one."""

    def __init__(self, server: MlflowServer, elsewhere: ArtifactFiles) -> None:
        self._server, self._elsewhere = server, elsewhere

    def listed(self, address: str) -> Mapping[str, int]:
        place = self._resolved(address)
        root = root_on(self._server.url, place)
        return self._elsewhere.listed(place) if root is None else dict(sorted(files_below(self._server, root)))

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        place = self._resolved(address)
        root = root_on(self._server.url, place)
        if root is None:
            return self._elsewhere.parts(place, path)
        return self._server.parts(artifact_path(root, path))

    def put(self, address: str, path: str, file: Path) -> None:
        place = self._resolved(address)
        root = root_on(self._server.url, place)
        if root is None:
            self._elsewhere.put(place, path, file)
        else:
            self._server.upload(artifact_path(root, path), file)

    def _resolved(self, address: str) -> str:
        """The address of files; a version may be known by the run that logged them."""
        parts = urlsplit(address)
        if parts.scheme != "runs":
            return address
        run, _, path = (parts.netloc + parts.path).strip("/").partition("/")
        info = self._server.get(f"{API}/runs/get", {"run_id": run})["run"]["info"]
        return f"{info['artifact_uri'].rstrip('/')}/{path}".rstrip("/")
