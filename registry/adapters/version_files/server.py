"""Files of model versions that an MLflow server hands out itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlsplit

from registry.adapters.mlflow_address import API, ARTIFACTS_API, root_on
from registry.adapters.mlflow_http import MlflowServer
from registry.errors import RegistryError
from registry.ports import ArtifactFiles


class ServerFiles:
    """An `ArtifactFiles`. What lies elsewhere, such as in a bucket, is left to another one."""

    def __init__(self, server: MlflowServer, elsewhere: ArtifactFiles) -> None:
        self._server, self._elsewhere = server, elsewhere

    def listed(self, address: str) -> Mapping[str, int]:
        place = self._resolved(address)
        root = root_on(self._server.url, place)
        return self._elsewhere.listed(place) if root is None else dict(sorted(self._below(root, "")))

    def parts(self, address: str, path: str) -> Iterator[bytes]:
        place = self._resolved(address)
        root = root_on(self._server.url, place)
        if root is None:
            return self._elsewhere.parts(place, path)
        return self._server.parts(f"{ARTIFACTS_API}/{quote(f'{root}/{path}'.strip('/'))}")

    def _resolved(self, address: str) -> str:
        """The address of files; a version may be known by the run that logged them."""
        parts = urlsplit(address)
        if parts.scheme != "runs":
            return address
        run, _, path = (parts.netloc + parts.path).strip("/").partition("/")
        info = self._server.get(f"{API}/runs/get", {"run_id": run})["run"]["info"]
        return f"{info['artifact_uri'].rstrip('/')}/{path}".rstrip("/")

    def _below(self, root: str, folder: str) -> Iterator[tuple[str, int]]:
        path = "/".join(filter(None, (root, folder)))
        for file in self._server.get(ARTIFACTS_API, {"path": path}).get("files", []):
            name = file["path"]
            # What a server names is asked for and written here: nothing of it may lead out of the folder.
            if name in ("", ".", "..") or "/" in name or "\\" in name:
                raise RegistryError(f"MLflow store {self._server.url} lists an artifact named {name!r}")
            below = f"{folder}/{name}" if folder else name
            if file.get("is_dir"):
                yield from self._below(root, below)
            else:
                yield below, int(file.get("file_size") or 0)
