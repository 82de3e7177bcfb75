"""The image below an engine's own layers: it brings the operating system, Python and the pinned vLLM."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from engine_images.errors import BrokenImage
from engine_images.oci.model import DOCKER_INDEX, DOCKER_MANIFEST, INDEX, MANIFEST, Descriptor, Document, Platform
from tidegate.core.model import Value

INDEXES = (INDEX, DOCKER_INDEX)
MANIFESTS = (MANIFEST, DOCKER_MANIFEST)

DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
"""Docker's word and the specification's for the same bytes; an OCI manifest is to hold the second."""


class Base(Value):
    """What an engine's image continues. Only documents: the layers stay where they are until somebody needs them."""

    platform: Platform
    reference: str = ""
    """Where it can be pulled, with its digest; empty for one from a layout, whose path means nothing elsewhere."""
    digest: str = ""
    """Of its manifest; empty for no base at all."""
    layers: tuple[Descriptor, ...] = ()
    config: Document = Field(default_factory=dict)
    layout: Path | None = None
    """The layout on this machine that holds its layers; None when they are in a registry."""


def platform_of(config: Document) -> Platform:
    """What the image with this configuration runs on."""
    return Platform(architecture=config.get("architecture", ""), os=config.get("os", ""))


def manifest_for(index: Document, platform: Platform) -> Descriptor:
    """The image for `platform` among those of an image index.

    Raises:
        BrokenImage: when there is none; names those that are there.
    """
    offered = [
        (entry["platform"], Descriptor.read(entry))
        for entry in index.get("manifests", ())
        if entry.get("mediaType") in MANIFESTS and "platform" in entry
    ]
    for words, descriptor in offered:
        if platform_of(words) == platform:
            return descriptor.model_copy(update={"annotations": {}})
    known = ", ".join(f"{words.get('os')}/{words.get('architecture')}" for words, _ in offered) or "no platform"
    raise BrokenImage(f"the base has no image for {platform.os}/{platform.architecture}", hint=f"it has: {known}")


def base_of(manifest: Document, config: Document) -> Base:
    """A base from its two documents; whoever read them says where they are from."""
    return Base(
        platform=platform_of(config),
        layers=tuple(_bare(Descriptor.read(layer)) for layer in manifest["layers"]),
        config=config,
    )


def _bare(layer: Descriptor) -> Descriptor:
    kind = OCI_LAYER if layer.media_type == DOCKER_LAYER else layer.media_type
    return layer.model_copy(update={"media_type": kind, "annotations": {}})
