"""Where an image lies: in a layout on this disk, or in a registry."""

from __future__ import annotations

import json

from engine_images.adapters.oci_layout import OciLayout
from engine_images.adapters.oci_registry import Repository
from engine_images.errors import BrokenImage, NotThere
from engine_images.oci.model import Descriptor, documents
from engine_images.oci.signatures import DOCUMENT_LIMIT, PAYLOAD, SIGNATURE, Signed, signature_tag

SIGNATURES_LIMIT = 64
"""Signatures of one image that are looked at; the one who may write to a registry may hang thousands on it."""


class InLayout:
    """One image of a layout."""

    def __init__(self, layout: OciLayout, name: str | None) -> None:
        """`name` may be None where there is only one."""
        self._layout = layout
        self._name = name

    def manifest(self) -> tuple[Descriptor, bytes]:
        """See Images."""
        found = self._layout.manifest(self._name)
        return found, self._layout.content(found)

    def content(self, descriptor: Descriptor) -> bytes:
        """See Images."""
        return self._layout.content(descriptor)

    def signatures(self, digest: str) -> None:
        """See Images."""


class InRegistry:
    """One image of an opened repository."""

    def __init__(self, repository: Repository) -> None:
        """Its reference says which image."""
        self._repository = repository

    def manifest(self) -> tuple[Descriptor, bytes]:
        """See Images."""
        return self._repository.manifest(self._repository.reference.name)

    def content(self, descriptor: Descriptor) -> bytes:
        """See Images."""
        return b"".join(self._repository.blob(descriptor))

    def signatures(self, digest: str) -> tuple[Signed, ...]:
        """In cosign's format; none when there are none.

        Raises:
            BrokenImage: they cannot be read.
        """
        try:
            _, content = self._repository.manifest(signature_tag(Descriptor(media_type="", digest=digest, size=0)))
        except NotThere:
            return ()
        with documents():
            layers = [Descriptor.read(layer) for layer in json.loads(content).get("layers", ())]
        found = [layer for layer in layers if layer.media_type == PAYLOAD and SIGNATURE in layer.annotations]
        if any(layer.size > DOCUMENT_LIMIT for layer in found) or len(found) > SIGNATURES_LIMIT:
            raise BrokenImage(
                f"the signatures of {digest} are larger or more than signatures are",
                hint="remove what other programs attached to the image",
            )
        return tuple((b"".join(self._repository.blob(layer)), layer.annotations[SIGNATURE].encode()) for layer in found)
