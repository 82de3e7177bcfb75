"""Artifacts that an MLflow server hands out itself, by its mlflow-artifacts API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from registry.adapters.mlflow_address import ARTIFACTS_API, PROXIED
from registry.adapters.mlflow_http import Server
from registry.errors import RegistryError, StoreRefused
from registry.model import StoredRun
from registry.ports import ArtifactStore

HTTP_NOT_FOUND = 404


class ProxiedArtifacts:
    """An `ArtifactStore`. What lies elsewhere, such as in a bucket, is left to another one."""

    def __init__(self, server: Server, elsewhere: ArtifactStore) -> None:
        self._server, self._elsewhere = server, elsewhere

    def upload(self, run: StoredRun, path: Path, folder: str) -> None:
        root = self._root(run.artifacts)
        if root is None:
            self._elsewhere.upload(run, path, folder)
        else:
            self._server.upload(_place(root, folder, path.name), path)

    def files(self, run: StoredRun, folder: str) -> Sequence[str]:
        root = self._root(run.artifacts)
        if root is None:
            return self._elsewhere.files(run, folder)
        return sorted(self._below(root, folder))

    def download(self, run: StoredRun, path: str, target: Path) -> None:
        root = self._root(run.artifacts)
        if root is None:
            self._elsewhere.download(run, path, target)
        else:
            self._server.download(_place(root, path), target)

    def download_tree(self, address: str, target: Path) -> Path:
        root = self._root(address)
        if root is None:
            return self._elsewhere.download_tree(address, target)
        folder = target / root.rpartition("/")[2]
        for path in self._below(root, ""):
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            self._server.download(_place(root, path), place)
        return folder

    def _root(self, address: str) -> str | None:
        """The path below which the server has them; None when it does not hand them out."""
        parts = urlsplit(address)
        ours = parts.netloc in ("", urlsplit(self._server.url).netloc)
        return parts.path.strip("/") if parts.scheme == PROXIED and ours else None

    def _below(self, root: str, folder: str) -> Iterator[str]:
        try:
            listed = self._server.get(ARTIFACTS_API, {"path": "/".join(filter(None, (root, folder)))}).get("files", [])
        except StoreRefused as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            return
        for file in listed:
            name = file["path"]
            # What a server names is written here: nothing of it may lead out of the folder.
            if name in ("", ".", "..") or "/" in name or "\\" in name:
                raise RegistryError(f"MLflow store {self._server.url} lists an artifact named {name!r}")
            path = f"{folder}/{name}" if folder else name
            if file.get("is_dir"):
                yield from self._below(root, path)
            else:
                yield path


def _place(*parts: str) -> str:
    return f"{ARTIFACTS_API}/{quote('/'.join(part for part in parts if part not in ('', '.')))}"
