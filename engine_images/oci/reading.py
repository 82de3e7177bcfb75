"""What an engine's image holds, read without its large layers wherever it lies, and whose it is."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Protocol

from pydantic import Field, ValidationError

from engine_images.errors import BrokenImage
from engine_images.manifest import MANIFEST_FILE, ROOT, SBOM_FILE, SIGNATURE_FILE, EngineManifest
from engine_images.oci.compose import ENGINE_LAYER, WEIGHTS_LAYER
from engine_images.oci.model import (
    BASE_LAYER,
    INDEXES,
    TITLE,
    Descriptor,
    Document,
    Platform,
    documents,
    platform_of,
)
from engine_images.oci.signatures import DOCUMENT_LIMIT, Signed, signer_of_image, signer_of_manifest
from tidegate.core.model import Value
from tidegate.core.text import aligned, in_bytes

ENGINE_LAYER_LIMIT = 64 << 20
"""Bytes. Entrypoint, manifest and SBOM are a few hundred thousand; more than this is something else."""


class Images(Protocol):
    """A place that holds images, of which one is meant."""

    def manifest(self) -> tuple[Descriptor, bytes]:
        """The image's manifest, and its bytes."""
        ...

    def content(self, descriptor: Descriptor) -> bytes:
        """A small blob, or a manifest, proven against its digest."""
        ...

    def signatures(self, digest: str) -> tuple[Signed, ...]:
        """Of the whole image, which has that digest.

        Raises:
            BadSignature: the place has no room for signatures.
        """
        ...


class ImageLayer(Value):
    """One layer of an image."""

    title: str
    digest: str
    size: int
    """In bytes, as a registry keeps it."""


class EngineImage(Value):
    """An engine as its image has it."""

    digest: str
    """Of the image's manifest: the name under which everyone gets the same image."""
    platform: Platform
    annotations: Mapping[str, str]
    layers: tuple[ImageLayer, ...]
    """Lowest first, those of the base included."""
    entrypoint: tuple[str, ...]
    engine: EngineManifest
    signed: bytes = Field(exclude=True)
    """The engine's manifest as it was written and signed."""
    signature: str
    """Of the engine's manifest, in base64; empty when it has none."""
    packages: Mapping[str, str]
    """Versions of the engine environment's distributions, from the SBOM; empty when there is none."""

    @property
    def size(self) -> int:
        """Of all layers, in bytes."""
        return sum(layer.size for layer in self.layers)


@documents()
def read_engine(images: Images) -> EngineImage:
    """What the image holds; every document that is read is proven against its digest.

    Raises:
        BrokenImage: no image of an engine, or something in it was changed.
    """
    image, content = images.manifest()
    if image.media_type in INDEXES:
        raise BrokenImage("an index of several images; an engine's image is one", hint="name it by its digest")
    manifest: Document = json.loads(content)
    described = Descriptor.read(manifest["config"])
    config: Document = json.loads(_content(images, described, "configuration", DOCUMENT_LIMIT))
    files = _engine_files(images, manifest)
    sbom = files.get(f"{ROOT}/{SBOM_FILE}")
    return EngineImage(
        digest=image.digest,
        platform=platform_of(config),
        annotations=manifest.get("annotations", {}),
        layers=tuple(
            ImageLayer(title=layer.annotations.get(TITLE, BASE_LAYER), digest=layer.digest, size=layer.size)
            for layer in map(Descriptor.read, manifest["layers"])
        ),
        entrypoint=tuple(config.get("config", {}).get("Entrypoint") or ()),
        engine=manifest_in(files),
        signed=files[f"{ROOT}/{MANIFEST_FILE}"],
        signature=files.get(f"{ROOT}/{SIGNATURE_FILE}", b"").decode(errors="replace"),
        packages={
            part["name"]: part.get("version", "")
            for part in (json.loads(sbom).get("components", ()) if sbom else ())
            if part.get("type") == "library"
        },
    )


def manifest_in(files: Mapping[str, bytes]) -> EngineManifest:
    """The engine's own manifest, of the engine layer's files by absolute path.

    Raises:
        BrokenImage: there is none, or one that this tidegate cannot read.
    """
    content = files.get(f"{ROOT}/{MANIFEST_FILE}")
    if content is None:
        raise BrokenImage(
            f"the engine layer has no {ROOT}/{MANIFEST_FILE}", hint="pack it again: tidegate engine build"
        )
    try:
        return EngineManifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BrokenImage(
            f"{ROOT}/{MANIFEST_FILE} cannot be read: {where}: {first['msg']}", hint="another tidegate may have made it"
        ) from error


def _engine_files(images: Images, manifest: Document) -> dict[str, bytes]:
    layers = map(Descriptor.read, manifest.get("layers", ()))
    layer = next((layer for layer in layers if layer.annotations.get(TITLE) == ENGINE_LAYER), None)
    if layer is None:
        raise BrokenImage(
            "no image of an engine: it has no layer titled `engine`",
            hint="name an image that `tidegate engine build` packed",
        )
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
        is_ours = path.startswith(f"{ROOT}/") and ".." not in PurePosixPath(path).parts
        if not member.isfile() or member.issparse() or not is_ours or path in seen or limit < 0:
            raise BrokenImage(
                f"the engine layer has {path[:200]!r}; expected plain files below {ROOT}, each once",
                hint="build it again",
            )
        seen.add(path)
        file = tar.extractfile(member)
        yield path, file.read() if file else b""


@documents()
def prove_image(images: Images, keys: Mapping[str, bytes]) -> tuple[EngineImage, str, str]:
    """Prove an image by the signatures of its engine's manifest and of its digest, which covers all of it.

    Returns:
        The image, and the names of the keys that signed the first and the second.

    Raises:
        BadSignature: a signature is missing or by none of the keys, or the image lies where none can be.
        BrokenImage: no image of an engine, or something in it was changed.
    """
    image = read_engine(images)
    manifest_by = signer_of_manifest(image.signed, image.signature.encode(), keys)
    return image, manifest_by, signer_of_image(image.digest, images.signatures(image.digest), keys)


def contents_of(image: EngineImage) -> Iterator[str]:
    """Say what it holds, in lines for a person."""
    engine, model = image.engine, image.engine.model
    weights = f"pulled from {model.source or '?'}"
    if any(layer.title == WEIGHTS_LAYER for layer in image.layers):
        weights = "in the image"
    yield from aligned(
        [
            ("image", image.digest),
            ("platform", f"{image.platform.os}/{image.platform.architecture}, {in_bytes(image.size)}"),
            ("engine", engine.engine),
            ("model", f"{model.name}:{model.version}, {len(model.files)} files {weights}, digest {model.digest[:12]}"),
            ("arguments", " ".join(engine.launch.arguments)),
            ("drain", f"{engine.launch.drain_seconds} s"),
            ("signature", "of the engine's manifest" if image.signature else "none"),
            ("packages", f"{len(image.packages)} in the SBOM" if image.packages else "no SBOM"),
        ]
    )
    yield "\nlayers"
    yield from aligned([(f"  {layer.title}", in_bytes(layer.size), layer.digest) for layer in image.layers])
    if engine.key:
        yield f"\ncompile key {engine.key.digest[:12]}"
        yield from aligned([(f"  {name}", engine.key.factors[name]) for name in sorted(engine.key.factors)])
