"""An engine's files and its base become an image in a layout."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from engine_images.adapters.oci_layer import write_layer
from engine_images.adapters.oci_layout import OciLayout
from engine_images.errors import BrokenImage
from engine_images.manifest import CACHE_FOLDER, ENTRYPOINT_FOLDER, MANIFEST_FILE, MODEL_FOLDER, EngineManifest
from engine_images.oci.base import Base
from engine_images.oci.compose import Contents, annotations_of, labels_of, manifest_bytes, planned_layers
from engine_images.oci.image import config_of, manifest_of
from engine_images.oci.model import CONFIG, MANIFEST, Descriptor, Runtime, canonical
from engine_images.signature import SigningKey


def build_image(
    layout: OciLayout, *, name: str, base: Base, contents: Contents, runtime: Runtime, key: SigningKey | None = None
) -> Descriptor:
    """Write the image and let `name` name it; the same inputs give the same descriptor.

    Layers of a base from a registry stay there: pushing mounts or copies them.

    Args:
        layout: gets the blobs; a build that breaks off leaves no image in it.
        name: of the image within the layout, such as `support-llm:7`.
        base: what the image continues.
        contents: everything of ours.
        runtime: how a container of it runs; its labels are added to those that every engine has.
        key: signs the engine's manifest.

    Raises:
        BrokenImage: the manifest and the files at hand are not about the same engine.
        DiskFull: no room; the name points at what it pointed at before.
    """
    signature = key.sign(manifest_bytes(contents.manifest)) if key else None
    planned = planned_layers(contents, signature)
    bring(base, layout)
    layers = [write_layer(layout, layer.title, layer.files, executable=frozenset()) for layer in planned]
    labelled = runtime.model_copy(update={"labels": labels_of(contents.manifest) | dict(runtime.labels)})
    config = layout.put(canonical(config_of(base.config, layers, labelled, base.platform)), CONFIG)
    manifest = manifest_of(config, base.layers, layers, annotations_of(contents.manifest, base))
    image = layout.put(canonical(manifest), MANIFEST)
    layout.name(image, name)
    return image


def contents_in(root: Path, *, with_weights: bool, sbom: bytes = b"") -> Contents:
    """An engine that lies at `root` as it will in the image; folders may be links.

    Raises:
        BrokenImage: there is no manifest that can be read.
    """
    try:
        manifest = EngineManifest.model_validate_json((root / MANIFEST_FILE).read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise BrokenImage(f"{root} is no engine: {MANIFEST_FILE} is missing or cannot be read") from error
    return Contents(
        manifest=manifest,
        entrypoint={path: file for path, file in _files(root / ENTRYPOINT_FOLDER).items() if file.suffix != ".pyc"},
        cache=_files(root / CACHE_FOLDER),
        model=_files(root / MODEL_FOLDER) if with_weights else {},
        sbom=sbom,
    )


def _files(folder: Path) -> dict[str, Path]:
    # A link to a folder is followed only where a search begins.
    start = folder.resolve()
    return {path.relative_to(start).as_posix(): path for path in sorted(start.rglob("*")) if path.is_file()}


def bring(base: Base, layout: OciLayout) -> None:
    """Let `layout` hold the layers of a base that is on this machine, without a second copy where disks allow."""
    if base.layout is None or base.layout.resolve() == layout.root.resolve():
        return
    source = OciLayout(base.layout)
    for descriptor in base.layers:
        _link(source.path(descriptor), layout, descriptor)


def _link(blob: Path, layout: OciLayout, descriptor: Descriptor) -> None:
    target = layout.root / "blobs" / "sha256" / blob.name
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.link(blob, target)
        return
    with layout.writing() as copy, blob.open("rb") as file:
        shutil.copyfileobj(file, copy, 1 << 20)
        if copy.digest != descriptor.digest:
            raise BrokenImage(f"{blob} is not what its name says: it was changed")
