"""Where an image lies: in a layout on this disk, or in a registry.

Steps load this in order to prove images, and have nothing that builds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_registry import RegistryAccess, Repository, docker_config, find_credentials
from engine_images.oci.reading import Images
from engine_images.oci.reference import ImageReference
from tidegate.core.errors import UsageError

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
        yield OciLayout(*layout)
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
        yield repository
