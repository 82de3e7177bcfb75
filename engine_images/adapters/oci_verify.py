"""Reads what proves an image: the signatures beside it, its engine layer, its configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from engine_images.adapters.engine_root import entrypoint_digests
from engine_images.adapters.oci_read import (
    DOCUMENT_LIMIT,
    Images,
    InRegistry,
    config_of,
    read_engine,
    read_engine_files,
)
from engine_images.adapters.oci_registry import Repository
from engine_images.errors import BadSignature, BrokenImage, NotThere
from engine_images.oci.attachment import PAYLOAD, SIGNATURE, signature_tag
from engine_images.oci.inspect import EngineImage
from engine_images.oci.model import Descriptor
from engine_images.oci.signed import Signed, signer_of_image, signer_of_manifest, unlike_ours

SIGNATURES_LIMIT = 64
"""Signatures of one image that are looked at; whoever may write to a registry may hang thousands on it."""


@dataclass(frozen=True)
class Proof:
    """What was proven of an image, and by which keys."""

    image: EngineImage
    manifest_by: str
    image_by: str | None
    """None for one in a layout, which has no place for signatures of images."""


def prove_image(images: Images, keys: Mapping[str, bytes]) -> Proof:
    """Prove all of an image: by the signature of its digest in a registry, else piece by piece.

    Raises:
        BadSignature: a signature is missing or by none of the keys; or, in a layout, something of the image that
            the manifest's signature does not cover is not what this tidegate would have put there.
        BrokenImage: no image of an engine, or something in it was changed.
    """
    image = read_engine(images)
    manifest_by = signer_of_manifest(read_engine_files(images), keys)
    if isinstance(images, InRegistry):
        found = signatures_of(images.repository, image.digest)
        return Proof(image, manifest_by, signer_of_image(image.digest, found, keys))
    odd = next(unlike_ours(image, config_of(images), entrypoint_digests()), None)
    if odd:
        raise BadSignature(
            f"{odd}, and the signature of the engine's manifest does not cover it",
            hint="`tidegate engine push --sign-key` signs an image whole; verify it in its registry",
        )
    return Proof(image, manifest_by, None)


def signatures_of(repository: Repository, digest: str) -> tuple[Signed, ...]:
    """The signatures beside the image with that digest, in cosign's format; none when there are none.

    Raises:
        BrokenImage: they cannot be read.
    """
    try:
        _, content = repository.manifest(signature_tag(Descriptor(media_type="", digest=digest, size=0)))
    except NotThere:
        return ()
    layers = [Descriptor.read(layer) for layer in json.loads(content).get("layers", ())]
    found = [layer for layer in layers if layer.media_type == PAYLOAD and SIGNATURE in layer.annotations]
    if any(layer.size > DOCUMENT_LIMIT for layer in found) or len(found) > SIGNATURES_LIMIT:
        raise BrokenImage(f"the signatures of {digest} are larger or more than signatures are")
    return tuple((b"".join(repository.blob(layer)), layer.annotations[SIGNATURE].encode()) for layer in found)
