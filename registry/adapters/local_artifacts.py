"""Files that MLflow keeps on this machine, without MLflow's library."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from registry.adapters.mlflow_sqlite import NotReadHere
from registry.adapters.version_files.folder import UNFINISHED


def list_files(address: str, folder: str) -> dict[str, int]:
    """The bytes of all files below a folder of that address, by path, sorted; none when there is no such folder.

    Raises:
        NotReadHere: they are elsewhere, or a link leads there.
        OSError: a folder cannot be read.
    """
    root = _root(address)
    return dict(
        sorted((path.relative_to(root).as_posix(), path.stat().st_size) for path in _walk(_inside(root, folder)))
    )


def copy_file(address: str, path: str, target: Path) -> None:
    """Copy one file to `target`, which appears whole.

    Raises:
        NotReadHere: it is elsewhere, or there is none.
        OSError: it cannot be read or written.
    """
    source = _inside(_root(address), path)
    if not source.is_file():
        raise NotReadHere(path)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as folder:
        Path(shutil.copy2(source, folder)).replace(target)


def _root(address: str) -> Path:
    parts = urlsplit(address)
    path = Path(url2pathname(parts.path))
    if parts.scheme not in ("", "file") or parts.netloc or parts.query or parts.fragment or not path.is_absolute():
        raise NotReadHere(address)
    return path


def _inside(root: Path, path: str) -> Path:
    if ".." in Path(path).parts or Path(path).is_absolute() or (root / path).resolve() != root.resolve() / path:
        raise NotReadHere(path)
    return root / path


def _walk(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        # What a link leads to is MLflow's to allow.
        if path.is_symlink():
            raise NotReadHere(str(path))
        if path.is_dir():
            yield from _walk(path)
        elif not path.name.startswith(UNFINISHED):
            yield path
