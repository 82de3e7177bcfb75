"""Which files of an engine go into which layer, and what the image says of itself. Pure.

    base            the operating system, Python, vLLM
    engine          entrypoint, manifest and its signature, SBOM: a few kilobytes, other for every version
    compile cache   the same for all versions of an architecture
    weights         only in an image that is to start without an artifact store

A layer that did not change keeps its digest: a registry or a node that has it does not get it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


def manifest_bytes(manifest: EngineManifest) -> bytes:
    """The manifest as the image has it, and as it is signed."""
    return canonical(manifest.model_dump(mode="json"))


def planned_layers(contents: Contents, signature: bytes | None) -> dict[str, Files]:
    """The files of each of our layers by absolute path in the image, lowest first; one that would be empty is none.

    Args:
        contents: what goes in.
        signature: of `manifest_bytes`, as the file is to hold it.
    """
    engine: dict[str, Source] = {f"{ROOT}/{MANIFEST_FILE}": manifest_bytes(contents.manifest)}
    if signature is not None:
        engine[f"{ROOT}/{SIGNATURE_FILE}"] = signature
    if contents.sbom:
        engine[f"{ROOT}/{SBOM_FILE}"] = contents.sbom
    layers = {
        ENGINE_LAYER: engine | _below(ENTRYPOINT_FOLDER, contents.entrypoint),
        CACHE_LAYER: _below(CACHE_FOLDER, contents.cache),
        WEIGHTS_LAYER: _below(MODEL_FOLDER, contents.model),
    }
    return {title: files for title, files in layers.items() if files}


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


def _below(folder: str, files: Files) -> dict[str, Source]:
    return {f"{ROOT}/{folder}/{path}": source for path, source in files.items()}
