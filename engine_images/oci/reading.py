"""Reads an engine's image without its large layers, wherever it lies, and proves whose it is."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from engine_images.errors import BadSignature, BrokenImage
from engine_images.manifest import ENTRYPOINT_FOLDER, ROOT, Digests
from engine_images.oci.entrypoint_files import entrypoint_digests
from engine_images.oci.inspect import EngineImage, engine_image, engine_layer
from engine_images.oci.model import INDEXES, Descriptor, Document, documents
from engine_images.oci.signatures import (
    DOCUMENT_LIMIT,
    Signed,
    signer_of_image,
    signer_of_manifest,
)

ENGINE_LAYER_LIMIT = 64 << 20
"""Bytes. Entrypoint, manifest and SBOM are a few hundred thousand; more than this is something else."""

STARTS = ("-m", "tidegate_entrypoint", "serve")
"""How the first process goes on behind its Python."""


class Images(Protocol):
    """A place that holds one image."""

    def manifest(self) -> tuple[Descriptor, bytes]:
        """The image's manifest, and its bytes."""
        ...

    def content(self, descriptor: Descriptor) -> bytes:
        """A small blob, proven against its digest."""
        ...

    def signatures(self, digest: str) -> tuple[Signed, ...] | None:
        """Of the whole image, which has that digest; None where they have no place, as in a layout."""
        ...


@documents()
def read_engine(images: Images) -> EngineImage:
    """What the image holds; every document that is read is proven against its digest.

    Raises:
        BrokenImage: no image of an engine, or something in it was changed.
    """
    image, manifest = _image(images)
    return engine_image(image.digest, manifest, config_of(images), _engine_files(images, manifest))


@documents()
def config_of(images: Images) -> Document:
    """The image's configuration.

    Raises:
        BrokenImage: as `read_engine`.
    """
    _, manifest = _image(images)
    content = _content(images, Descriptor.read(manifest["config"]), "configuration", DOCUMENT_LIMIT)
    config: Document = json.loads(content)
    return config


@documents()
def read_engine_files(images: Images) -> dict[str, bytes]:
    """The files of the engine layer, by absolute path in the image.

    Raises:
        BrokenImage: no image of an engine, or the layer was changed.
    """
    _, manifest = _image(images)
    return _engine_files(images, manifest)


def _image(images: Images) -> tuple[Descriptor, Document]:
    image, content = images.manifest()
    if image.media_type in INDEXES:
        raise BrokenImage("an index of several images; an engine's image is one", hint="name it by its digest")
    manifest: Document = json.loads(content)
    return image, manifest


def _engine_files(images: Images, manifest: Document) -> dict[str, bytes]:
    layer = engine_layer(manifest)
    content = _content(images, layer, "engine layer", ENGINE_LAYER_LIMIT)
    try:
        # Ours is never compressed, and what is not compressed cannot become more than it is.
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            return dict(_files(tar, len(content)))
    except tarfile.TarError as error:
        raise BrokenImage(
            f"the engine layer is not an uncompressed tar: {error}", hint="pack it again: tidegate engine build"
        ) from error


def _content(images: Images, descriptor: Descriptor, what: str, limit: int) -> bytes:
    if descriptor.size > limit:
        raise BrokenImage(
            f"the {what} has {descriptor.size:,} bytes; expected at most {limit:,}",
            hint="it is no engine image: name another",
        )
    return images.content(descriptor)


def _files(tar: tarfile.TarFile, limit: int) -> Iterator[tuple[str, bytes]]:
    """The files by absolute path; nothing is read that the tar's own length does not account for."""
    seen: set[str] = set()
    for member in tar:
        path = f"/{member.name}"
        limit -= member.size
        if member.isdir():
            continue
        if not member.isfile() or member.issparse() or not _ours(path) or path in seen or limit < 0:
            raise BrokenImage(
                f"the engine layer has {path[:200]!r}; expected plain files below {ROOT}, each once",
                hint="build it again",
            )
        seen.add(path)
        file = tar.extractfile(member)
        yield path, file.read() if file else b""


def _ours(path: str) -> bool:
    return path.startswith(f"{ROOT}/") and ".." not in PurePosixPath(path).parts


@dataclass(frozen=True)
class ImageProof:
    """What was proven of an image, and by which keys."""

    image: EngineImage
    manifest_by: str
    image_by: str | None
    """None for one in a layout, which has no place for signatures of images."""


@documents()
def prove_image(images: Images, keys: Mapping[str, bytes]) -> ImageProof:
    """Prove all of an image: by the signature of its digest in a registry, else piece by piece.

    Raises:
        BadSignature: a signature is missing or by none of the keys; or, in a layout, something of the image that
            the manifest's signature does not cover is not what this tidegate would have put there.
        BrokenImage: no image of an engine, or something in it was changed.
    """
    image = read_engine(images)
    manifest_by = signer_of_manifest(read_engine_files(images), keys)
    found = images.signatures(image.digest)
    if found is not None:
        return ImageProof(image, manifest_by, signer_of_image(image.digest, found, keys))
    odd = next(_unsigned_differences(image, config_of(images), entrypoint_digests()), None)
    if odd:
        raise BadSignature(
            f"{odd}, and the signature of the engine's manifest does not cover it",
            hint="`tidegate engine push --sign-key` signs an image whole; verify it in its registry",
        )
    return ImageProof(image, manifest_by, None)


def _unsigned_differences(image: EngineImage, config: Document, entrypoint: Digests) -> Iterator[str]:
    """Where what the manifest's signature does not cover differs from what this tidegate puts into an image.

    Args:
        image: as it was read.
        config: its configuration.
        entrypoint: digests of this tidegate's own entrypoint, by path below the entrypoint's folder.
    """
    below = f"{ROOT}/{ENTRYPOINT_FOLDER}/"
    found = {path.removeprefix(below): digest for path, digest in image.files.items() if path.startswith(below)}
    for path in sorted(found.keys() | entrypoint.keys()):
        if found.get(path) != entrypoint.get(path):
            yield f"{below}{path} is not this tidegate's own"
    said = config.get("config") or {}
    if tuple(said.get("Entrypoint") or ())[1:] != STARTS or said.get("Cmd"):
        yield f"the first process is {[*(said.get('Entrypoint') or ()), *(said.get('Cmd') or ())]}"
    if str(said.get("User", "")).partition(":")[0] in {"0", "root"}:
        yield f"the user is {said['User']}"
