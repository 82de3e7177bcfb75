"""Files become a layer: a tar in which nothing depends on who made it, when, or in which order."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import IO, cast

from engine_images.adapters.oci_layout import HashedFile, OciLayout
from engine_images.oci.model import LAYER, Descriptor, Layer, Source


def write_layer(layout: OciLayout, title: str, files: Mapping[str, Source], *, executable: frozenset[str]) -> Layer:
    """Keep a layer in `layout`.

    Args:
        layout: gets the blob.
        title: what the layer is, for people.
        files: by absolute path in the image. Links are read through.
        executable: the paths among them that may be run.

    Raises:
        DiskFull: when there is no room; no part of the layer is left.
    """
    with layout.writing() as blob, tarfile.open(mode="w|", fileobj=_stream(blob), format=tarfile.PAX_FORMAT) as tar:
        for folder in _folders(files):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
        for path in sorted(files):
            _add(tar, path, files[path], mode=0o755 if path in executable else 0o644)
    return Layer(title=title, descriptor=Descriptor(media_type=LAYER, digest=blob.digest, size=blob.size))


def _add(tar: tarfile.TarFile, path: str, source: Source, *, mode: int) -> None:
    entry = _entry(path, tarfile.REGTYPE, mode)
    if isinstance(source, bytes):
        entry.size = len(source)
        tar.addfile(entry, io.BytesIO(source))
        return
    entry.size = source.stat().st_size
    with source.open("rb") as file:
        tar.addfile(entry, file)


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    """Owned by root and from the beginning of time, as everything here."""
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.mode = kind, mode
    return entry


def _folders(files: Mapping[str, Source]) -> list[str]:
    """Every folder that the files need, parents first."""
    return sorted({str(parent) for path in files for parent in PurePosixPath(path).parents if parent.name})


def _stream(blob: HashedFile) -> IO[bytes]:
    # All that a tar written as a stream needs of a file is `write`.
    return cast("IO[bytes]", blob)
