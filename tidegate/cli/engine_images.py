"""Opens the images that a person names, with the credentials that there are."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import SecretStr

from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_read import Images, InLayout, InRegistry
from engine_images.adapters.oci_registry import Access, Repository
from engine_images.adapters.registry_credentials import Credentials, docker_config, find_credentials
from engine_images.oci.model import Platform
from engine_images.oci.reference import Reference
from tidegate.cli.output import note
from tidegate.core.errors import UsageError


@dataclass(frozen=True)
class Login:
    """How a person told us to speak to registries."""

    given: Credentials | None
    registry: str
    """The one that what was given is for; a base's registry, which an image names, must not see it."""
    insecure: bool

    @classmethod
    def asked(cls, username: str | None, insecure: bool, password_stdin: bool, *images: str) -> Login:
        """From the options of a command, and the images that it names.

        Raises:
            UsageError: a user without a password, the reverse, or one user for several registries.
        """
        if (username is None) is password_stdin:
            raise UsageError("--username and --password-stdin belong together")
        if username is None:
            return cls(None, "", insecure)
        registries = {Reference.parse(image).registry for image in images if split_layout(image) is None}
        if len(registries) != 1:
            raise UsageError(
                f"--username is for one registry; found {', '.join(sorted(registries)) or 'none'}",
                hint="docker login knows one user for each",
            )
        credentials = Credentials(username=username, password=SecretStr(sys.stdin.readline().rstrip("\r\n")))
        return cls(credentials, registries.pop(), insecure)

    def access(self, reference: Reference) -> Access:
        """What was given for this registry; else what docker knows."""
        given = self.given if reference.registry == self.registry else None
        return Access(given or find_credentials(reference.registry, docker_config()), self.insecure)


GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""How images name what Python calls a machine."""


def this_platform() -> Platform:
    """What images that are built on this machine run on."""
    return Platform(architecture=GO_NAMES.get(platform.machine(), platform.machine()))


@contextmanager
def opened(image: str, login: Login) -> Iterator[Images]:
    """The image called `PATH[:NAME]` or `REGISTRY/REPOSITORY:TAG`.

    Raises:
        BrokenImage: a path without a layout.
        BadReference: neither of the two.
    """
    layout = split_layout(image)
    if layout:
        yield InLayout(OciLayout(layout[0]), layout[1])
        return
    reference = Reference.parse(image)
    with Repository(reference, login.access(reference)) as repository:
        yield InRegistry(repository)


def wait_for_registry(seconds: float) -> None:
    """Say that it is away, and let the time pass before the next attempt."""
    note(f"the registry is away; next attempt in {seconds:g} s")
    time.sleep(seconds)
