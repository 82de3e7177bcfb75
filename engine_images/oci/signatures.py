"""Signatures next to an image in a registry, as cosign reads them, and whose an image is. Pure.

The signature of an image's digest covers everything: by that digest go its manifest, its configuration (first process,
user, variables) and every layer. The signature of the engine's manifest covers model, cache and vLLM's arguments alone:
that one an engine proves at its start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from engine_images.errors import BadSignature
from engine_images.manifest import ROOT, SIGNATURE_FILE
from engine_images.oci.model import CONFIG, MANIFEST, Descriptor, Document, canonical
from engine_images.oci.reference import ImageReference

DOCUMENT_LIMIT = 4 << 20
"""Bytes of an image's configuration: what registries themselves take for a manifest."""

PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE = "dev.cosignproject.cosign/signature"


def signature_tag(digest: str) -> str:
    """Where cosign looks for the signatures of the image with that digest."""
    return f"{digest.replace(':', '-')}.sig"


def signed_payload(image: Descriptor, where: ImageReference) -> bytes:
    """What is signed: this manifest, in this repository, in the words of the `simple signing` format."""
    critical = {
        "identity": {"docker-reference": f"{where.registry}/{where.repository}"},
        "image": {"docker-manifest-digest": image.digest},
        "type": "cosign container image signature",
    }
    return canonical({"critical": critical, "optional": None})


def with_signature(before: Document, payload: bytes, signature: bytes) -> tuple[bytes, list[tuple[Descriptor, bytes]]]:
    """The signatures of an image with one more, as a manifest and the blobs it needs; `before` may be empty."""
    signed = Descriptor.of(payload, PAYLOAD).model_copy(update={"annotations": {SIGNATURE: signature.decode()}})
    others = [layer for layer in before.get("layers", ()) if layer["annotations"] != signed.annotations]
    layers = [*others, signed.to_dict()]
    # A configuration, because an image must have one.
    payloads = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
    config = canonical({"architecture": "", "os": "", "config": {}, "rootfs": payloads})
    described = Descriptor.of(config, CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described.to_dict(), "layers": layers}
    return canonical(manifest), [(described, config), (signed, payload)]


Signed = tuple[bytes, bytes]
"""A payload in the words of `simple signing`, and its signature in base64."""


def signer_of_image(digest: str, signatures: Sequence[Signed], keys: Mapping[str, bytes]) -> str:
    """The name of the key by which one of the signatures is of this image.

    Args:
        digest: of the image's manifest.
        signatures: as they are found next to the image.
        keys: public keys in PEM, by what people call them.

    Raises:
        BadSignature: there is none by any of the keys, or they are of other images.
        BadKey: one of the keys is none.
    """
    if not signatures:
        raise BadSignature(f"the image {digest} is not signed", hint="`tidegate engine push --sign-key` signs it")
    found = {_digest_in(payload): name for name, payload in _signers(signatures, keys)}
    if digest in found:
        return found[digest]
    if found:
        raise BadSignature(
            f"the image {digest} carries a signature of {', '.join(sorted(found))}",
            hint="sign it: `tidegate engine push --sign-key`",
        )
    raise BadSignature(
        f"the image {digest} is signed by none of the keys {', '.join(keys)}",
        hint="sign it with one of these keys (`tidegate engine push --sign-key`), or trust its key in the trust file",
    )


def signer_of_manifest(manifest: bytes, signature: bytes, keys: Mapping[str, bytes]) -> str:
    """The name of the key that signed these bytes of the engine's manifest; `signature` is empty where there is none.

    Raises:
        BadSignature: there is no signature, or it is by none of the keys.
        BadKey: one of the keys is none.
    """
    if not signature:
        raise BadSignature(
            f"the engine's manifest is not signed: no {ROOT}/{SIGNATURE_FILE}",
            hint="build and push it again with --sign-key",
        )
    for name, _ in _signers([(manifest, signature)], keys):
        return name
    raise BadSignature(
        "the engine's manifest is signed by another key, or was changed since it was signed",
        hint="build and push it again with --sign-key",
    )


def _signers(signed: Sequence[Signed], keys: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Each key that made one of the signatures, by its name, and what it signed."""
    # Where no key is trusted, nothing that reads keys is loaded.
    from engine_images.signature import verify

    for name, key in keys.items():
        for content, signature in signed:
            with suppress(BadSignature):
                verify(key, content, signature)
                yield name, content


def _digest_in(payload: bytes) -> str:
    """The image that a signed payload names; nothing when it is of another kind."""
    try:
        return str(json.loads(payload)["critical"]["image"]["docker-manifest-digest"])
    except (ValueError, KeyError, TypeError):
        return "nothing that can be read"
