"""A base image's documents: from a registry, or from an OCI layout on this machine. Its layers stay where they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_registry import Access, Repository
from engine_images.errors import BadReference, BrokenImage
from engine_images.oci.base import INDEXES, Base, base_of, manifest_for
from engine_images.oci.model import Descriptor, Platform
from engine_images.oci.reference import Reference


def base_at(text: str, platform: Platform, access: Callable[[Reference], Access]) -> Base:
    """The base that a person named: `PATH[:NAME]` of a layout, or an image in a registry by its digest.

    Raises:
        BadReference: neither of them.
        BrokenImage: none for the platform, or not what its digests say.
        RegistryRefused: it is not there, or credentials are wanted.
        RegistryUnavailable: no answer.
    """
    layout = split_layout(text)
    if layout:
        return base_in_layout(*layout, platform)
    reference = Reference.parse(text)
    return base_in_registry(reference, access(reference), platform)


def base_in_layout(root: Path, name: str | None, platform: Platform) -> Base:
    """The image `name` in the layout `root` (the only one when None), for `platform` when it is there for several.

    Raises:
        BrokenImage: no such image, none for the platform, or not what its digests say.
    """
    layout = OciLayout(root)
    found = layout.entry(name)
    if found.media_type in INDEXES:
        found = manifest_for(layout.read(found), platform)
    manifest = layout.read(found)
    base = base_of(manifest, layout.read(Descriptor.read(manifest["config"])))
    _require(base, platform)
    return base.model_copy(update={"digest": found.digest, "layout": root})


def base_in_registry(reference: Reference, access: Access, platform: Platform) -> Base:
    """The image at `reference`, which names it by digest: a tag means another image tomorrow.

    Raises:
        BadReference: without a digest; the hint has the one that the tag means now.
        BrokenImage: none for the platform, or not what its digests say.
        RegistryRefused: it is not there, or credentials are wanted.
        RegistryUnavailable: no answer.
    """
    with Repository(reference, access) as repository:
        found, content = repository.manifest(reference.name)
        if not reference.digest:
            raise BadReference(
                f"`{reference}` may be another image tomorrow: a base is named by its digest",
                hint=f"now it is {reference}@{found.digest}",
            )
        if found.media_type in INDEXES:
            found, content = repository.manifest(manifest_for(json.loads(content), platform).digest)
        manifest = json.loads(content)
        config = Descriptor.read(manifest["config"])
        base = base_of(manifest, json.loads(b"".join(repository.blob(config))))
    _require(base, platform)
    return base.model_copy(update={"digest": found.digest, "reference": str(reference)})


def _require(base: Base, platform: Platform) -> None:
    if base.platform != platform:
        has, wants = (f"{each.os}/{each.architecture}" for each in (base.platform, platform))
        raise BrokenImage(f"the base is for {has}; expected {wants}")
