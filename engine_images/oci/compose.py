"""Which files of an engine go into which layer, and what the image says of itself. Pure.

    base            the operating system, Python, vLLM
    engine          entrypoint, manifest and its signature, SBOM: a few kilobytes, other for every version
    compile cache   the same for all versions of an architecture
    weights         only in an image that is to start without an artifact store

A layer that did not change keeps its digest: a registry or a node that has it does not get it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from engine_images.errors import BrokenImage
from engine_images.manifest import (
    CACHE_FOLDER,
    ENTRYPOINT_FOLDER,
    MANIFEST_FILE,
    MODEL_FOLDER,
    ROOT,
    SBOM_FILE,
    SIGNATURE_FILE,
    EngineManifest,
)
from engine_images.oci.model import BASE_DIGEST, BASE_NAME, TITLE, Base, Source, canonical

ENGINE_LAYER = "engine"
CACHE_LAYER = "compile cache"
WEIGHTS_LAYER = "weights"

Files = Mapping[str, Source]
"""By path relative to the folder of the image that they go to."""


@dataclass(frozen=True)
class Contents:
    """Everything of ours that an image holds."""

    manifest: EngineManifest
    entrypoint: Files
    cache: Files = field(default_factory=dict)
    model: Files = field(default_factory=dict)
    """Weights and all else that is served; empty when they are pulled at start."""
    sbom: bytes = b""


@dataclass(frozen=True)
class PlannedLayer:
    """A layer before it is written."""

    title: str
    files: Mapping[str, Source]
    """By absolute path in the image."""


def manifest_bytes(manifest: EngineManifest) -> bytes:
    """The manifest as the image has it, and as it is signed."""
    return canonical(manifest.model_dump(mode="json"))


def planned_layers(contents: Contents, signature: bytes | None) -> tuple[PlannedLayer, ...]:
    """Our layers, lowest first; a layer that would be empty is none.

    Args:
        contents: what goes in.
        signature: of `manifest_bytes`, as the file is to hold it.

    Raises:
        BrokenImage: the manifest and the files at hand are not about the same engine.
    """
    _require_same_names("compile cache", contents.manifest.cache, contents.cache)
    if contents.model:
        _require_same_names("model", contents.manifest.model.files, contents.model)
    layers = (
        PlannedLayer(ENGINE_LAYER, dict(_engine_files(contents, signature))),
        PlannedLayer(CACHE_LAYER, _below(CACHE_FOLDER, contents.cache)),
        PlannedLayer(WEIGHTS_LAYER, _below(MODEL_FOLDER, contents.model)),
    )
    return tuple(layer for layer in layers if layer.files)


def annotations_of(manifest: EngineManifest, base: Base) -> dict[str, str]:
    """What the image says of itself, in the specification's words where it has some; no dates."""
    said = {
        TITLE: manifest.model.name,
        "org.opencontainers.image.version": manifest.model.version,
        BASE_DIGEST: base.digest,
        BASE_NAME: base.reference,
        **labels_of(manifest),
    }
    return {name: text for name, text in said.items() if text}


def labels_of(manifest: EngineManifest) -> dict[str, str]:
    """What a running container can be asked: which build it is, of which model."""
    return {
        "dev.tidegate.engine": manifest.engine,
        "dev.tidegate.model": f"{manifest.model.name}:{manifest.model.version}",
        "dev.tidegate.model.digest": manifest.model.digest,
    }


def _engine_files(contents: Contents, signature: bytes | None) -> Iterator[tuple[str, Source]]:
    yield f"{ROOT}/{MANIFEST_FILE}", manifest_bytes(contents.manifest)
    if signature is not None:
        yield f"{ROOT}/{SIGNATURE_FILE}", signature
    if contents.sbom:
        yield f"{ROOT}/{SBOM_FILE}", contents.sbom
    yield from _below(ENTRYPOINT_FOLDER, contents.entrypoint).items()


def _below(folder: str, files: Files) -> dict[str, Source]:
    return {f"{ROOT}/{folder}/{_inside(path)}": source for path, source in files.items()}


def _inside(path: str) -> str:
    """`path` as it is.

    Raises:
        BrokenImage: it would leave its folder.
    """
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or str(parts) != path:
        raise BrokenImage(
            f"{path!r} is no path below a folder of the image",
            hint="name it relative to the root of the image, without `..`",
        )
    return path


def _require_same_names(what: str, written: Mapping[str, str], files: Files) -> None:
    odd = sorted(written.keys() ^ files.keys())
    if odd:
        where = "the manifest only" if odd[0] in written else "the folder only"
        raise BrokenImage(
            f"manifest and {what} differ in {len(odd)} file(s): {odd[0]} is in {where}",
            hint="pack it again: tidegate engine build",
        )
