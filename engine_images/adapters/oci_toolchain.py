"""A folder into which tidegate was installed becomes an image in a layout; no daemon is asked."""

from __future__ import annotations

import os
from pathlib import Path

from engine_images.adapters.oci_build import bring
from engine_images.adapters.oci_layer import write_layer
from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.base import Base
from engine_images.oci.image import config_of, manifest_of
from engine_images.oci.model import CONFIG, MANIFEST, Descriptor, canonical
from engine_images.oci.toolchain import COMMAND, HOME, toolchain_annotations, toolchain_layers, toolchain_runtime


def build_toolchain(layout: OciLayout, *, name: str, base: Base, installed: Path) -> Descriptor:
    """Write the image and let `name` name it; the same folder gives the same descriptor.

    Raises:
        BrokenImage: tidegate was not installed there.
        DiskFull: no room; the name points at what it pointed at before.
    """
    files = dict(_files(installed))
    planned = toolchain_layers(files)
    executable = {f"{HOME}/{place}" for place, path in files.items() if os.access(path, os.X_OK)} | {COMMAND}
    bring(base, layout)
    layers = [write_layer(layout, each.title, each.files, executable=frozenset(executable)) for each in planned]
    config = layout.put(canonical(config_of(base.config, layers, toolchain_runtime(base), base.platform)), CONFIG)
    manifest = manifest_of(config, base.layers, layers, toolchain_annotations(base))
    image = layout.put(canonical(manifest), MANIFEST)
    layout.name(image, name)
    return image


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Without what Python makes of them while it runs."""
    found = ((path.relative_to(folder), path) for path in sorted(folder.rglob("*")) if path.is_file())
    return [(place.as_posix(), path) for place, path in found if "__pycache__" not in place.parts]
