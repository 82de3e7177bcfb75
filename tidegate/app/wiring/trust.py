"""Reads the trust file, and builds what checks by it: the images of engines, and the people who approve."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_images.adapters.oci_read import InRegistry
from engine_images.adapters.oci_registry import RegistryAccess, Repository, docker_config, find_credentials
from engine_images.oci.reading import Images
from engine_images.oci.reference import ImageReference
from pipelines.authority.engine_images import TrustedImages, keys_in
from pipelines.spec.trust import Trusted, trust_at
from pipelines.statements import Identities
from tidegate.app.process import TRUST_VARIABLE


def trust_next_to(folder: Path) -> Trusted:
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
    return TrustedImages(open=_open_image, repositories=asked.images, keys=keys_in(asked, trusted.folder))


@contextmanager
def _open_image(reference: ImageReference) -> Iterator[Images]:
    access = RegistryAccess(find_credentials(reference.registry, docker_config()))
    with Repository(reference, access) as repository:
        yield InRegistry(repository)


def local_identities(trusted: Trusted) -> Identities:
    """Who can prove who they are, by the trust file of this machine."""
    # Not above: it loads what checks tokens, which few commands need.
    from pipelines.adapters.identities import ProvenIdentities

    return ProvenIdentities(trusted.trust.approvers, trusted.folder)
