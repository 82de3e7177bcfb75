"""A base image's documents from an OCI layout on this machine."""

from __future__ import annotations

from pathlib import Path

from engine_images.adapters.oci_layout import OciLayout
from engine_images.oci.base import INDEXES, Base, base_of, manifest_for
from engine_images.oci.model import Descriptor, Platform


def base_in_layout(root: Path, name: str | None, platform: Platform) -> Base:
    """The image `name` in the layout `root` (the only one when None), for `platform` when it is there for several.

    Raises:
        BrokenImage: no such image, or not what its digests say.
    """
    layout = OciLayout(root)
    found = layout.entry(name)
    if found.media_type in INDEXES:
        found = manifest_for(layout.read(found), platform)
    manifest = layout.read(found)
    base = base_of(manifest, layout.read(Descriptor.read(manifest["config"])))
    return base.model_copy(update={"digest": found.digest, "layout": root})
