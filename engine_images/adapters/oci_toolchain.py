"""A folder into which tidegate was installed becomes an image in a layout; no daemon is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from engine_images.adapters.bytecode import with_bytecode
from engine_images.adapters.oci_build import bring
from engine_images.adapters.oci_layer import write_layer
from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.base import Base
from engine_images.oci.compose import PlannedLayer
from engine_images.oci.image import config_of, manifest_of
from engine_images.oci.model import CONFIG, MANIFEST, Descriptor, canonical
from engine_images.oci.toolchain import COMMAND, HOME, toolchain_annotations, toolchain_layers, toolchain_runtime


def build_toolchain(layout: OciLayout, *, name: str, base: Base, files: Mapping[str, Path]) -> Descriptor:
    """Write the image and let `name` name it; the same files, by their places, give the same descriptor.

    Raises:
        BrokenImage: tidegate is not among them.
        DiskFull: no room; the name points at what it pointed at before.
    """
    planned = toolchain_layers(files)
    executable = {f"{HOME}/{place}" for place, path in files.items() if os.access(path, os.X_OK)} | {COMMAND}
    bring(base, layout)
    with TemporaryDirectory(prefix="tidegate-") as folder:
        compiled = [_compiled(each, Path(folder, each.title)) for each in planned]
        layers = [write_layer(layout, each.title, each.files, executable=frozenset(executable)) for each in compiled]
    config = layout.put(canonical(config_of(base.config, layers, toolchain_runtime(base), base.platform)), CONFIG)
    manifest = manifest_of(config, base.layers, layers, toolchain_annotations(base))
    image = layout.put(canonical(manifest), MANIFEST)
    layout.name(image, name)
    return image


def _compiled(layer: PlannedLayer, folder: Path) -> PlannedLayer:
    sources = {place: source for place, source in layer.files.items() if isinstance(source, Path)}
    return replace(layer, files={**layer.files, **with_bytecode(sources, folder)})
