"""The trust file that holds for a command, and what follows from it for images of engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_images.adapters.oci_read import Images, InRegistry
from engine_images.adapters.oci_registry import Access, Repository
from engine_images.adapters.registry_credentials import docker_config, find_credentials
from engine_images.oci.reference import Reference
from pipelines.trust import Trusted, trust_at
from pipelines.trusted_images import TrustedImages, keys_in
from tidegate.cli.options import TRUST_VARIABLE


def trusted_beside(folder: Path) -> Trusted:
    """The trust file that TIDEGATE_TRUST names, else the one in `folder`; an empty one where there is none."""
    named = os.environ.get(TRUST_VARIABLE)
    return trust_at(Path(named) if named else None, folder)


def trusted_images(trusted: Trusted) -> TrustedImages | None:
    """What images of engines have to be; None where nothing is asked of them.

    Raises:
        BadKey: a key cannot be read.
    """
    asked = trusted.trust.engines
    if not asked.keys and not asked.images:
        return None
    return TrustedImages(open=_opened, repositories=asked.images, keys=keys_in(asked, trusted.folder))


@contextmanager
def _opened(reference: Reference) -> Iterator[Images]:
    access = Access(find_credentials(reference.registry, docker_config()))
    with Repository(reference, access) as repository:
        yield InRegistry(repository)
