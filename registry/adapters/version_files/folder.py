"""Files of model versions in a folder of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from registry.errors import StoreRefused, StoreUnreachable

PART_BYTES = 1 << 20
UNFINISHED = ".artifact.uploading."
"""How the names of files begin that MLflow is still writing."""


class FolderFiles:
    """An `ArtifactFiles` of addresses that `folder_of` takes."""

    def listed(self, address: str) -> Mapping[str, int]:
        folder = folder_of(address)
        if folder is None or not folder.is_dir():
            raise StoreRefused(
                f"{address}: no such folder on this machine", hint="artifacts lie elsewhere?", code="", status=404
            )
        found = (
            Path(place, name)
            for place, _, names in os.walk(folder)
            for name in names
            if not name.startswith(UNFINISHED)
        )
        return {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(found)}

    def parts(self, address: str, path: str, near: Path | None = None) -> Iterator[bytes]:  # noqa: ARG002
        folder = folder_of(address)
        try:
            with (folder or Path()).joinpath(path).open("rb") as file:
                while part := file.read(PART_BYTES):
                    yield part
        except OSError as error:
            raise StoreUnreachable(
                f"{address}/{path}: cannot be read: {error.strerror}",
                hint="check that the folder is mounted and readable",
            ) from error

    def put(self, address: str, path: str, file: Path) -> None:
        kept = (folder_of(address) or Path()).joinpath(path)
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept)
        except OSError as error:
            raise StoreUnreachable(
                f"{address}/{path}: cannot be written: {error.strerror}",
                hint="check that the folder is mounted and writable",
            ) from error


def folder_of(address: str) -> Path | None:
    """The folder that an artifact address means; None when it is not on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "file":
        return Path(unquote(parts.path)) if parts.netloc in ("", "localhost") else None
    return Path(address) if address.startswith("/") else None
