"""What the engine commands share: opening the images that a person names, and printing what is found."""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from engine_images.adapters.oci_layout import OciLayout, split_layout
from engine_images.adapters.oci_read import Images, InLayout, InRegistry
from engine_images.adapters.oci_registry import Credentials, RegistryAccess, Repository, docker_config, find_credentials
from engine_images.oci.model import Platform
from engine_images.oci.reference import ImageReference
from tidegate.app.process import note
from tidegate.cli.options import LoginOptions
from tidegate.core.errors import UsageError

DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows as columns; the last column is as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()


def at_most(lines: Sequence[str], count: int = 20) -> Iterator[str]:
    """The first lines, and how many more there are: a compile cache has hundreds of files."""
    yield from lines[:count]
    if len(lines) > count:
        yield f"  and {len(lines) - count} more: --output json has them all"


def in_bytes(size: int) -> str:
    """A size as people say it: `1.2 GB`."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def short(digest: str) -> str:
    """The first characters of a digest, enough to tell two apart."""
    return digest.removeprefix("sha256:")[:12]


def shortened(text: str) -> str:
    """`text`, or its short form when it is a digest."""
    return short(text) if DIGEST.fullmatch(text) else text


def read_key(path: Path) -> bytes:
    """The content of a key file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


@dataclass(frozen=True)
class RegistryLogin:
    """How a person told us to speak to registries."""

    given: Credentials | None
    registry: str
    """The one that what was given is for; a base's registry, which an image names, must not see it."""
    insecure: bool

    @classmethod
    def asked(cls, login: LoginOptions, *images: str) -> RegistryLogin:
        """From the options of a command, and the images that it names.

        Raises:
            UsageError: a user without a password, the reverse, or one user for several registries.
        """
        if (login.username is None) is login.password_stdin:
            raise UsageError("--username and --password-stdin belong together")
        if login.username is None:
            return cls(None, "", login.insecure)
        registries = {ImageReference.parse(image).registry for image in images if split_layout(image) is None}
        if len(registries) != 1:
            raise UsageError(
                f"--username is for one registry; found {', '.join(sorted(registries)) or 'none'}",
                hint="docker login knows one user for each",
            )
        credentials = Credentials(username=login.username, password=SecretStr(sys.stdin.readline().rstrip("\r\n")))
        return cls(credentials, registries.pop(), login.insecure)

    def access(self, reference: ImageReference) -> RegistryAccess:
        """What was given for this registry; else what docker knows."""
        given = self.given if reference.registry == self.registry else None
        return RegistryAccess(given or find_credentials(reference.registry, docker_config()), self.insecure)


GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""How images name what Python calls a machine."""


def this_platform() -> Platform:
    """What images that are built on this machine run on."""
    return Platform(architecture=GO_NAMES.get(platform.machine(), platform.machine()))


@contextmanager
def opened(image: str, login: RegistryLogin) -> Iterator[Images]:
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
    with Repository(reference, login.access(reference)) as repository:
        yield InRegistry(repository)


def wait_for_registry(seconds: float) -> None:
    """Say that it is away, and let the time pass before the next attempt."""
    note(f"the registry is away; next attempt in {seconds:g} s")
    time.sleep(seconds)
