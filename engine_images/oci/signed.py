"""Whose an image is: signatures of its digest, and what the signature of its engine's manifest leaves open. Pure.

The signature of an image's digest covers everything: by that digest go its manifest, its configuration (first process,
user, variables) and every layer. The signature of the engine's manifest covers model, cache and vLLM's arguments alone,
so that where nobody signed the image, the rest is compared with what this tidegate would have put there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from engine_images.errors import BadSignature
from engine_images.manifest import ENTRYPOINT_FOLDER, MANIFEST_FILE, ROOT, SIGNATURE_FILE, Digests
from engine_images.oci.inspect import EngineImage
from engine_images.oci.model import Document
from engine_images.signature import verify

Signed = tuple[bytes, bytes]
"""A payload in the words of `simple signing`, and its signature in base64."""

STARTS = ("-m", "tidegate_entrypoint", "serve")
"""How the first process goes on behind its Python."""


def signer_of_image(digest: str, signatures: Sequence[Signed], keys: Mapping[str, bytes]) -> str:
    """The name of the key by which one of the signatures is of this image.

    Args:
        digest: of the image's manifest.
        signatures: as they are found beside the image.
        keys: public keys in PEM, by what people call them.

    Raises:
        BadSignature: there is none by any of the keys, or they are of other images.
        BadKey: one of the keys is none.
    """
    if not signatures:
        raise BadSignature(f"the image {digest} is not signed", hint="`tidegate engine push --sign-key` signs it")
    others = set()
    for name, key in keys.items():
        for payload, signature in signatures:
            try:
                verify(key, payload, signature)
            except BadSignature:
                continue
            of = _digest_in(payload)
            if of == digest:
                return name
            others.add(of)
    if others:
        raise BadSignature(f"the image {digest} carries a signature of {', '.join(sorted(others))}")
    raise BadSignature(f"the image {digest} is signed by none of the keys {', '.join(keys)}")


def signer_of_manifest(files: Mapping[str, bytes], keys: Mapping[str, bytes]) -> str:
    """The name of the key that signed the engine's manifest; `files` are those of the engine layer.

    Raises:
        BadSignature: there is no signature, or it is by none of the keys.
        BadKey: one of the keys is none.
    """
    signature = files.get(f"{ROOT}/{SIGNATURE_FILE}")
    if signature is None:
        raise BadSignature(f"the engine's manifest is not signed: no {ROOT}/{SIGNATURE_FILE}")
    for name, key in keys.items():
        try:
            verify(key, files.get(f"{ROOT}/{MANIFEST_FILE}", b""), signature)
        except BadSignature:
            continue
        return name
    raise BadSignature("the engine's manifest is signed by another key, or was changed since it was signed")


def unlike_ours(image: EngineImage, config: Document, entrypoint: Digests) -> Iterator[str]:
    """Where what the manifest's signature does not cover differs from what this tidegate puts into an image.

    Args:
        image: as it was read.
        config: its configuration.
        entrypoint: digests of this tidegate's own entrypoint, by path below the entrypoint's folder.
    """
    below = f"{ROOT}/{ENTRYPOINT_FOLDER}/"
    found = {path.removeprefix(below): digest for path, digest in image.files.items() if path.startswith(below)}
    for path in sorted(found.keys() | entrypoint.keys()):
        if found.get(path) != entrypoint.get(path):
            yield f"{below}{path} is not this tidegate's own"
    said = config.get("config") or {}
    if tuple(said.get("Entrypoint") or ())[1:] != STARTS or said.get("Cmd"):
        yield f"the first process is {[*(said.get('Entrypoint') or ()), *(said.get('Cmd') or ())]}"
    if str(said.get("User", "")).partition(":")[0] in {"0", "root"}:
        yield f"the user is {said['User']}"


def _digest_in(payload: bytes) -> str:
    """The image that a signed payload names; nothing when it is of another kind."""
    try:
        return str(json.loads(payload)["critical"]["image"]["docker-manifest-digest"])
    except (ValueError, KeyError, TypeError):
        return "nothing that can be read"
