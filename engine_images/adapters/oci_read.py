"""Where an image lies: in a layout on this disk, or in a registry.

Steps load this in order to prove images, and have nothing that builds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_registry import RegistryAccess, Repository, docker_config, find_credentials
from engine_images.errors import BadSignature, BrokenImage, NotThere
from engine_images.oci.model import Descriptor, documents
from engine_images.oci.reading import Images
from engine_images.oci.reference import ImageReference
from engine_images.oci.signatures import DOCUMENT_LIMIT, PAYLOAD, SIGNATURE, Signed, signature_tag
from tidegate.core.errors import UsageError

SIGNATURES_LIMIT = 64
"""Signatures of one image that are looked at; the one who may write to a registry may hang thousands on it."""

AccessOf = Callable[[ImageReference], RegistryAccess]
"""How to speak to the registry of an image."""


def docker_access(*, insecure: bool = False) -> AccessOf:
    """By what `docker login` left for each registry; with `insecure` over plain HTTP also to other machines."""
    return lambda reference: RegistryAccess(find_credentials(reference.registry, docker_config()), insecure)


@contextmanager
def opened(image: str, access: AccessOf) -> Iterator[Images]:
    """Open the image called `PATH[:NAME]` or `REGISTRY/REPOSITORY:TAG`.

    Raises:
        BrokenImage: a path without a layout.
        BadReference: neither of the two.
        UsageError: one word, which is no layout here, and in no registry an engine.
    """
    layout = split_layout(image)
    if layout:
        yield InLayout(OciLayout(layout[0]), layout[1])
        return
    reference = ImageReference.parse(image)
    if "/" not in image:
        raise UsageError(f"{image}: no such OCI layout", hint="an image in a registry is REGISTRY/REPOSITORY:TAG")
    with opened_reference(reference, access) as images:
        yield images


@contextmanager
def opened_reference(reference: ImageReference, access: AccessOf | None = None) -> Iterator[Images]:
    """Open the image in its registry; by what `docker login` left, where nothing else is said."""
    with Repository(reference, (access or docker_access())(reference)) as repository:
        yield InRegistry(repository)


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

    def signatures(self, digest: str) -> tuple[Signed, ...]:
        """See Images."""
        raise BadSignature(
            f"a layout holds no signature of the whole image {digest}",
            hint="`tidegate engine push --sign-key` signs it; prove it in its registry",
        )


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
