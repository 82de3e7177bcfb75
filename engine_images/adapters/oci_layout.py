"""An OCI image layout: a folder of blobs named by their digests, and an index of the images among them.

A blob gets its name once all of it is there: the one who is killed in between leaves a temporary file, never
half a blob under a whole one's name.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from engine_images.errors import BadSignature, BrokenImage, DiskFull
from engine_images.oci.model import (
    INDEX,
    INDEXES,
    LAYER,
    MANIFESTS,
    REFERENCE,
    TITLE,
    Descriptor,
    Document,
    Source,
    canonical,
    documents,
)
from engine_images.oci.signatures import Signed
from tidegate.core.files import file_lock, partial_file, replace_file
from tidegate.core.text import json_of

LAYOUT_FILE = "oci-layout"
INDEX_FILE = "index.json"
VERSION = "1.0.0"
PIECE = 1 << 20
"""How much of a blob is in memory at once, in bytes."""


class HashedFile:
    """A file that knows the digest of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` is empty and open for writing."""
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, content: bytes) -> int:
        """As a file does."""
        self._hash.update(content)
        self.size += len(content)
        return self._file.write(content)

    @property
    def digest(self) -> str:
        """Of everything so far."""
        return f"sha256:{self._hash.hexdigest()}"


class OciLayout:
    """One layout on disk."""

    def __init__(self, root: Path, image: str | None = None) -> None:
        """Made when it is first written to; `image` is the name of the one that is read, None where there is one."""
        self.root = root
        self._image = image

    def put(self, content: bytes, media_type: str) -> Descriptor:
        """Keep content; the same content is kept once."""
        with self.writing() as file:
            file.write(content)
        return Descriptor.of(content, media_type)

    @contextmanager
    def writing(self) -> Iterator[HashedFile]:
        """A blob to be written piece by piece; it is there once the block ends without an error.

        Raises:
            DiskFull: when there is no room; nothing of the blob is left.
        """
        folder = self.root / "blobs" / "sha256"
        with _room_on_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with partial_file(folder / "blob") as partial:
                with partial.open("xb") as file:
                    hashed = HashedFile(file)
                    yield hashed
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(folder / hashed.digest.removeprefix("sha256:"))

    def path(self, descriptor: Descriptor) -> Path:
        """Where a blob is.

        Raises:
            BrokenImage: when it is not there, or not of its size.
        """
        path = self._blob(descriptor)
        if not path.is_file():
            raise BrokenImage(f"{self.root} has no blob {descriptor.digest}", hint="build or pull it again")
        if path.stat().st_size != descriptor.size:
            raise BrokenImage(
                f"{path} has {path.stat().st_size:,} bytes; expected {descriptor.size:,}", hint="build or pull it again"
            )
        return path

    def has(self, descriptor: Descriptor) -> bool:
        """Whether the blob is here; those of a base from a registry are not."""
        return self._blob(descriptor).exists()

    def _blob(self, descriptor: Descriptor) -> Path:
        return self.root / "blobs" / "sha256" / descriptor.digest.removeprefix("sha256:")

    def pieces(self, descriptor: Descriptor) -> Iterator[bytes]:
        """A blob of any size, piece by piece; not proven.

        Raises:
            BrokenImage: when it is not there, or not of its size.
        """
        with self.path(descriptor).open("rb") as file:
            yield from iter(partial(file.read, PIECE), b"")

    def content(self, descriptor: Descriptor) -> bytes:
        """A small blob, proven against its digest.

        Raises:
            BrokenImage: when it is not what it is named after.
        """
        content = self.path(descriptor).read_bytes()
        if Descriptor.of(content, descriptor.media_type).digest != descriptor.digest:
            raise BrokenImage(
                f"{self.path(descriptor)} is not what its name says: it was changed", hint="build or pull it again"
            )
        return content

    def read(self, descriptor: Descriptor) -> dict[str, Any]:
        """A blob of JSON, proven against its digest.

        Raises:
            BrokenImage: when it is not what it is named after.
        """
        return _json(self.content(descriptor), self.path(descriptor))

    def name(self, descriptor: Descriptor, reference: str) -> None:
        """Let `reference` name this manifest, one of this layout, from now on."""
        # Two builds that name their images at once wait for each other; a lock on the folder leaves no file.
        with _room_on_disk(self.root), file_lock(self.root):
            replace_file(self.root / LAYOUT_FILE, canonical({"imageLayoutVersion": VERSION}))
            others = [entry for entry in self._entries() if entry.annotations.get(REFERENCE) != reference]
            named = descriptor.model_copy(update={"annotations": {REFERENCE: reference}})
            entries = sorted((*others, named), key=lambda entry: entry.annotations.get(REFERENCE, ""))
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry.to_dict() for entry in entries]}
            replace_file(self.root / INDEX_FILE, canonical(index))

    def manifest(self) -> tuple[Descriptor, bytes]:
        """See Images."""
        found = self.find(self._image)
        return found, self.content(found)

    def signatures(self, digest: str) -> tuple[Signed, ...]:
        """See Images."""
        raise BadSignature(
            f"a layout holds no signature of the whole image {digest}",
            hint="`tidegate engine push --sign-key` signs it; prove it in its registry",
        )

    def find(self, reference: str | None = None) -> Descriptor:
        """The manifest, or the index, of the image named `reference`, or by its digest; the only one when None.

        Raises:
            BrokenImage: when there is none, or several and no name.
        """
        entries = [entry for entry in self._entries() if entry.media_type in {*MANIFESTS, *INDEXES}]
        found = [
            entry
            for entry in entries
            if reference is None or reference in (entry.annotations.get(REFERENCE), entry.digest)
        ]
        # One image may have several names.
        if found and all(entry.digest == found[0].digest for entry in found):
            return found[0].model_copy(update={"annotations": {}})
        names = ", ".join(entry.annotations.get(REFERENCE, entry.digest) for entry in entries) or "no image"
        wanted = f"an image {reference}" if reference else "one image"
        raise BrokenImage(f"{self.root} has no {wanted}", hint=f"it has: {names}")

    @documents()
    def _entries(self) -> list[Descriptor]:
        path = self.root / INDEX_FILE
        if not path.exists():
            return []
        return [Descriptor.read(entry) for entry in _json(path.read_bytes(), path).get("manifests", ())]


def split_layout(text: str) -> tuple[Path, str | None] | None:
    """A layout's path, and the image's name behind a colon; None when `text` means something else.

    Raises:
        BrokenImage: it is a path, and no layout is there.
    """
    whole = text.removeprefix("oci:")
    path, colon, name = whole.partition(":")
    for folder, image in ((whole, None), (path, name if colon else None)):
        if Path(folder, LAYOUT_FILE).is_file():
            return Path(folder), image
    if text.startswith(("oci:", "/", "./", "../")):
        raise BrokenImage(
            f"{path} is no OCI layout: it has no file `{LAYOUT_FILE}`",
            hint="name the folder that `tidegate engine build --layout` wrote",
        )
    return None


def image_in_layout(source: str) -> OciLayout:
    """The image of a layout on this disk that is called `PATH[:NAME]`.

    Raises:
        BrokenImage: no layout is there.
    """
    found = split_layout(source)
    if found is None:
        raise BrokenImage(
            f"{source} is no OCI layout", hint="name FOLDER:NAME of what `tidegate engine build --layout` wrote"
        )
    return OciLayout(*found)


def _json(content: bytes, path: Path) -> dict[str, Any]:
    try:
        document: Document = json_of(content)
    except ValueError as error:
        raise BrokenImage(f"{path} is not JSON: {error}", hint="build or pull it again") from error
    if not isinstance(document, dict):
        raise BrokenImage(f"{path} is not a JSON object", hint="build or pull it again")
    return document


@contextmanager
def _room_on_disk(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise DiskFull(f"no room left on the disk of {where}", hint="free some, and retry") from error


def write_layer(
    layout: OciLayout,
    title: str,
    files: Mapping[str, Source],
    *,
    executable: frozenset[str] = frozenset(),
) -> Descriptor:
    """Keep a layer in `layout`, under its title.

    Args:
        layout: gets the blob.
        title: what the layer is, for people.
        files: by absolute path in the image. Links are read through.
        executable: the paths among them that may be run.

    Raises:
        DiskFull: when there is no room; no part of the layer is left.
    """
    with layout.writing() as blob:
        # All that a tar written as a stream needs of a file is `write`.
        stream = cast("IO[bytes]", blob)
        with tarfile.open(mode="w|", fileobj=stream, format=tarfile.PAX_FORMAT) as tar:
            # Parents first.
            parents = {parent for path in files for parent in PurePosixPath(path).parents if parent.name}
            for folder in sorted(map(str, parents)):
                tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
            for path in sorted(files):
                _add(tar, path, files[path], mode=0o755 if path in executable else 0o644)
    return Descriptor(media_type=LAYER, digest=blob.digest, size=blob.size, annotations={TITLE: title})


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
