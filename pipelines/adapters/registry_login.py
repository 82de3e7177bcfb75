"""Images where they are: in layouts on this disk, or in registries, with what a person logged in with.

Steps load this in order to prove images, and have nothing that builds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import SecretStr

from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_read import InLayout, InRegistry
from engine_images.adapters.oci_registry import Credentials, RegistryAccess, Repository, docker_config, find_credentials
from engine_images.oci.reading import Images
from engine_images.oci.reference import ImageReference
from tidegate.core.errors import UsageError


def registry_of(image: str) -> str:
    """The registry that a user and a password are for.

    Raises:
        UsageError: the image is in none.
    """
    if split_layout(image) is not None:
        raise UsageError("--username is for a registry; found a layout", hint="leave --username and its password out")
    return ImageReference.parse(image).registry


@dataclass(frozen=True)
class RegistryLogin:
    """How to speak to registries: by what a person gave for one of them, else by what docker knows."""

    insecure: bool = False
    """Plain http also to other machines."""
    registry: str = ""
    """The one that user and password are for; a base's registry, which an image names, must not see them."""
    username: str = ""
    password: SecretStr | None = None

    def access(self, reference: ImageReference) -> RegistryAccess:
        """What was given for this registry; else what docker knows."""
        if self.password and reference.registry == self.registry:
            return RegistryAccess(Credentials(username=self.username, password=self.password), self.insecure)
        return RegistryAccess(find_credentials(reference.registry, docker_config()), self.insecure)

    @contextmanager
    def opened(self, image: str) -> Iterator[Images]:
        """The image called `PATH[:NAME]` or `REGISTRY/REPOSITORY:TAG`.

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
        with self.opened_reference(reference) as images:
            yield images

    @contextmanager
    def opened_reference(self, reference: ImageReference) -> Iterator[Images]:
        """The image in its registry."""
        with Repository(reference, self.access(reference)) as repository:
            yield InRegistry(repository)
