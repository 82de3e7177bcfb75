"""What an engine's image holds, from its documents and its engine layer. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from engine_images.errors import BrokenImage
from engine_images.manifest import (
    CACHE_FOLDER,
    MANIFEST_FILE,
    MODEL_FOLDER,
    ROOT,
    SBOM_FILE,
    SIGNATURE_FILE,
    Digests,
    EngineManifest,
)
from engine_images.oci.compose import ENGINE_LAYER, WEIGHTS_LAYER
from engine_images.oci.model import BASE_LAYER, TITLE, Descriptor, Document, Platform, platform_of
from tidegate.core.model import Value
from tidegate.core.text import aligned, in_bytes


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
    signature: str
    """Of the engine's manifest, in base64; empty when it has none."""
    files: Digests
    """Everything of ours, by path in the image. Of the cache and the model as the engine's manifest has them."""
    packages: Mapping[str, str]
    """Versions of the engine environment's distributions, from the SBOM; empty when there is none."""

    @property
    def size(self) -> int:
        """Of all layers, in bytes."""
        return sum(layer.size for layer in self.layers)


def engine_layer(manifest: Document) -> Descriptor:
    """The layer that says what the others are.

    Raises:
        BrokenImage: the image was not made by tidegate.
    """
    for layer in map(Descriptor.read, manifest.get("layers", ())):
        if layer.annotations.get(TITLE) == ENGINE_LAYER:
            return layer
    raise BrokenImage(
        "no image of an engine: it has no layer titled `engine`",
        hint="name an image that `tidegate engine build` packed",
    )


def engine_image(digest: str, manifest: Document, config: Document, files: Mapping[str, bytes]) -> EngineImage:
    """Put together what the documents say.

    Args:
        digest: of the image's manifest.
        manifest: the image's manifest.
        config: its configuration.
        files: the engine layer's files by absolute path.

    Raises:
        BrokenImage: the engine layer lacks its manifest, or has one that this tidegate cannot read.
    """
    engine = manifest_in(files)
    layers = tuple(_held(Descriptor.read(layer)) for layer in manifest["layers"])
    named = {f"{ROOT}/{CACHE_FOLDER}/{path}": digest for path, digest in engine.cache.items()}
    if any(layer.title == WEIGHTS_LAYER for layer in layers):
        named |= {f"{ROOT}/{MODEL_FOLDER}/{path}": digest for path, digest in engine.model.files.items()}
    return EngineImage(
        digest=digest,
        platform=platform_of(config),
        annotations=manifest.get("annotations", {}),
        layers=layers,
        entrypoint=tuple(config.get("config", {}).get("Entrypoint") or ()),
        engine=engine,
        signature=files.get(f"{ROOT}/{SIGNATURE_FILE}", b"").decode(errors="replace").strip(),
        files={path: hashlib.sha256(content).hexdigest() for path, content in files.items()} | named,
        packages=dict(_packages(files.get(f"{ROOT}/{SBOM_FILE}"))),
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


def _held(layer: Descriptor) -> ImageLayer:
    return ImageLayer(title=layer.annotations.get(TITLE, BASE_LAYER), digest=layer.digest, size=layer.size)


def _packages(sbom: bytes | None) -> Iterator[tuple[str, str]]:
    components = json.loads(sbom).get("components", ()) if sbom else ()
    for component in components:
        if component.get("type") == "library":
            yield component["name"], component.get("version", "")


MOST_FILES = 40


def contents_of(image: EngineImage) -> Iterator[str]:
    """Say what it holds, in lines for a person."""
    engine, model = image.engine, image.engine.model
    weights = "in the image" if any("/model/" in path for path in image.files) else f"pulled from {model.source or '?'}"
    yield from aligned(
        [
            ("image", image.digest),
            ("platform", f"{image.platform.os}/{image.platform.architecture}, {in_bytes(image.size)}"),
            ("engine", engine.engine),
            (
                "model",
                f"{model.name}:{model.version}, {len(model.files)} files {weights}, digest {_short(model.digest)}",
            ),
            ("arguments", " ".join(engine.launch.arguments)),
            ("drain", f"{engine.launch.drain_seconds} s"),
            ("signature", "of the engine's manifest" if image.signature else "none"),
            ("packages", f"{len(image.packages)} in the SBOM" if image.packages else "no SBOM"),
        ]
    )
    yield "\nlayers"
    yield from aligned([(f"  {layer.title}", in_bytes(layer.size), layer.digest) for layer in image.layers])
    if engine.key:
        yield f"\ncompile key {_short(engine.key.digest)}"
        yield from aligned([(f"  {name}", engine.key.factors[name]) for name in sorted(engine.key.factors)])
    yield "\nfiles"
    # Those of the compile cache last: they are many, and their names mean nothing to people.
    paths = sorted(image.files, key=lambda path: (path.startswith(f"{ROOT}/{CACHE_FOLDER}/"), path))
    yield from (f"  {_short(image.files[path])}  {path}" for path in paths[:MOST_FILES])
    if (more := len(paths) - MOST_FILES) > 0:
        yield f"  and {more} more: --output json has them all"


def _short(digest: str) -> str:
    """Enough to tell two apart."""
    return digest.removeprefix("sha256:")[:12]
