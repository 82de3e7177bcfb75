"""Hangs an SBOM and a signature on an image that is in a registry."""

from __future__ import annotations

import json
import time
from functools import partial

from engine_images.adapters.oci_push import AccessOf, Sleep, patiently
from engine_images.adapters.oci_registry import Body, Repository
from engine_images.errors import NotThere
from engine_images.oci.attachment import (
    Attachment,
    artifact,
    referrers_tag,
    signature_tag,
    signed_payload,
    with_referrer,
    with_signature,
)
from engine_images.oci.model import Descriptor, Document, canonical
from engine_images.oci.reference import Reference
from engine_images.sbom import MEDIA_TYPE
from engine_images.signature import SigningKey


def attach_sbom(
    image: Descriptor, where: Reference, sbom: bytes, access: AccessOf, sleep: Sleep = time.sleep
) -> Descriptor:
    """Let the SBOM be found by whoever asks what refers to `image`; returns what was attached.

    Raises:
        RegistryRefused: the registry will not have it.
        RegistryUnavailable: it went away and did not come back in time.
    """
    attachment = artifact(image, sbom, MEDIA_TYPE)
    found = Descriptor.of(attachment.manifest, "")
    with Repository(where, access(where)) as repository:
        patiently(partial(_bring, repository, attachment, found.digest), sleep)
        if not patiently(repository.knows_referrers, sleep):
            patiently(partial(_list, repository, referrers_tag(image), attachment), sleep)
    return found


def sign_image(
    image: Descriptor, where: Reference, key: SigningKey, access: AccessOf, sleep: Sleep = time.sleep
) -> str:
    """Add a signature as cosign reads it, beside those that are there; returns its tag.

    Raises:
        RegistryRefused: the registry will not have it.
        RegistryUnavailable: it went away and did not come back in time.
    """
    payload, tag = signed_payload(image, where), signature_tag(image)
    with Repository(where, access(where)) as repository:
        before = patiently(partial(_read, repository, tag), sleep)
        patiently(partial(_bring, repository, with_signature(before, payload, key.sign(payload)), tag), sleep)
    return tag


def _bring(repository: Repository, attachment: Attachment, name: str) -> None:
    for descriptor, content in attachment.blobs:
        if not repository.has(descriptor.digest):
            repository.send(Body(descriptor, partial(iter, (content,))))
    repository.publish(name, attachment.manifest)


def _list(repository: Repository, tag: str, attachment: Attachment) -> None:
    repository.publish(tag, canonical(with_referrer(_read(repository, tag), attachment)))


def _read(repository: Repository, tag: str) -> Document:
    """A manifest or index, empty when there is none."""
    try:
        document: Document = json.loads(repository.manifest(tag)[1])
    except NotThere:
        return {}
    return document
